import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.client.load import SHAPES, series_of
from penstock.spark.generator import (
    GeneratedPoint,
    GeneratorPlan,
    MetricStream,
    Point,
    content_hash,
    percentile,
    point_hash,
    read_points,
    rollups,
)
from penstock.spark.generator.expected import open_points
from penstock.spark.generator.records import (
    CLOSING_SERIES,
    MAKERS,
    TIMESTAMP_END_MS,
    InvalidPlan,
    Pair,
    bytes_hash,
)

START_MS = 1_700_000_000_000


def plan(count: int | None = 20_000, **more: Any) -> GeneratorPlan:
    troubles = {"late": 0.05, "duplicates": 0.02, "malformed": 0.03}
    return GeneratorPlan(count, START_MS, **{"series": 60, **troubles, **more})


def run(stream: MetricStream) -> list[Pair]:
    return list(itertools.chain.from_iterable(stream.intervals()))


def natural_key(point: dict[str, Any]) -> tuple[Any, ...]:
    return point["client"], point["name"], tuple(sorted(point["labels"].items())), point["timestamp"]


def is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def is_valid(value: bytes | None) -> bool:
    """The rules of the package's essay, written a second time."""
    try:
        record = json.loads((value or b"").decode())
    except ValueError:
        return False
    if not isinstance(record, dict) or not is_text(record.get("name")) or not is_text(record.get("client")):
        return False
    number, time = record.get("value"), record.get("timestamp")
    labels = record.get("labels", {})
    return (
        isinstance(labels, dict)
        and all(isinstance(label, str) for label in labels.values())
        and isinstance(number, int | float)
        and math.isfinite(number)
        and isinstance(time, int)
        and 0 <= time < TIMESTAMP_END_MS
    )


def test_the_same_plan_makes_the_same_records_and_another_seed_makes_others() -> None:
    first, again, other = (MetricStream(plan(seed=seed)) for seed in (1, 1, 2))

    assert run(first) == run(again)
    assert run(other) != run(MetricStream(plan(seed=1)))
    assert first.account.summary() == again.account.summary()


def test_as_many_records_are_made_as_asked_for_whatever_goes_wrong() -> None:
    stream = MetricStream(plan(12_345))

    made = run(stream)

    account = stream.account
    assert len(made) == account.records == 12_345
    assert account.points + account.duplicates + account.malformed == 12_345


def test_the_account_is_what_somebody_would_find_in_the_records() -> None:
    rows: list[GeneratedPoint] = []
    stream = MetricStream(plan(), rows.append)

    made = run(stream)

    valid = [json.loads(value or b"") for _, value in made if is_valid(value)]
    distinct = {natural_key(point): point for point in valid}
    broken = [value for _, value in made if not is_valid(value)]
    account = stream.account
    assert account.points == len(distinct) == len(rows)
    assert account.duplicates == len(valid) - len(distinct) > 300
    assert account.malformed == len(broken) > 400
    assert account.points_hash == content_hash(
        point_hash(p["name"], p["value"], p["labels"], p["timestamp"], p["client"]) for p in distinct.values()
    )
    assert account.malformed_hash == content_hash(bytes_hash(value) for value in broken)
    assert {row.content for row in rows} == {value for _, value in made if is_valid(value)}


def test_no_record_comes_later_than_allowed_and_as_many_come_late_as_were_counted() -> None:
    stream = MetricStream(plan(late_ms_max=10_000, duplicates=0.0, malformed=0.0))

    newest, late, lateness = 0, 0, 0
    for _, value in run(stream):
        timestamp = json.loads(value or b"")["timestamp"]
        late += timestamp < newest
        lateness = max(lateness, newest - timestamp)
        newest = max(newest, timestamp)

    assert 5_000 < lateness < 10_000
    # What is held back at the very end finds nothing newer before it.
    assert late <= stream.account.late <= late + 10
    assert late > 800


def test_a_repeated_record_is_no_later_than_a_late_one() -> None:
    stream = MetricStream(plan(series=1, duplicates=0.2, late_ms_max=5_000, malformed=0.0))

    newest = 0
    for _, value in run(stream):
        timestamp = json.loads(value or b"")["timestamp"]
        assert newest - timestamp <= 5_000
        newest = max(newest, timestamp)


@pytest.mark.parametrize("kind", MAKERS)
def test_every_malformed_kind_breaks_a_rule(kind: str) -> None:
    for shape in SHAPES:
        assert not is_valid(MAKERS[kind](series_of(3, shape), START_MS))


def test_every_malformed_kind_is_made() -> None:
    stream = MetricStream(plan(1_000, malformed=0.1, duplicates=0.0, late=0.0))

    broken = [value for _, value in run(stream) if not is_valid(value)]

    assert {b"", None} <= set(broken)
    assert len({value for value in broken if value}) > len(MAKERS) - 2


def test_the_numbers_look_like_those_of_a_fleet() -> None:
    rows: list[GeneratedPoint] = []
    run(MetricStream(plan(late=0.0, duplicates=0.0, malformed=0.0), rows.append))

    by_series: dict[bytes, list[GeneratedPoint]] = {}
    for row in rows:
        by_series.setdefault(row.series.key, []).append(row)
    assert len(by_series) == 60
    for members in by_series.values():
        assert len({row.timestamp_ms for row in members}) == len(members)
        if members[0].series.shape.counts_up:
            values = [row.value for row in members]
            assert values == sorted(values)
            assert values[-1] > values[0]


def test_what_is_still_held_back_comes_when_the_stream_is_ended_early() -> None:
    stream = MetricStream(plan(None))
    intervals = stream.intervals()

    made = [pair for _ in range(40) for pair in next(intervals)] + stream.rest()

    assert len(made) == stream.account.records == 40 * 60


def test_the_closing_record_is_valid_and_accounted_for() -> None:
    stream = MetricStream(plan(100))
    run(stream)
    before = stream.account.points

    _, value = stream.closing(START_MS + 86_400_000)

    assert is_valid(value)
    assert json.loads(value or b"")["name"] == CLOSING_SERIES
    assert stream.account.points == before + 1
    assert stream.account.closing_ms == START_MS + 86_400_000


@pytest.mark.parametrize("name", ["points.ndjson", "points.parquet"])
def test_a_file_of_points_holds_every_valid_point_once(tmp_path: Path, name: str) -> None:
    with open_points(tmp_path / name) as kept:
        stream = MetricStream(plan(3_000), kept.add)
        run(stream)

    points = list(read_points(tmp_path / name))
    assert len(points) == stream.account.points
    assert stream.account.points_hash == content_hash(
        point_hash(p.name, p.value, dict(p.labels), p.timestamp_ms, p.client) for p in points
    )


def test_rollups_are_those_of_each_series_in_each_window() -> None:
    points = [
        Point("cpu", float(value), (("host", "a"),), 60_000 + value * 20_000, "c") for value in range(5)
    ]

    found = {rollup.start_ms: rollup for rollup in rollups(points, 60_000, end_ms=179_999)}

    assert found.keys() == {60_000}
    assert {rollup.start_ms for rollup in rollups(points, 60_000, end_ms=180_000)} == {60_000, 120_000}
    first = found[60_000]
    assert (first.records, first.total, first.least, first.most, first.p50) == (3, 3.0, 0.0, 2.0, 1.0)
    assert Counter(rollup.start_ms for rollup in rollups(points, 60_000)) == {60_000: 1, 120_000: 1}


def test_a_point_differs_from_another_in_any_of_its_parts() -> None:
    point = ("cpu", 1.0, {"a": "1", "b": "2"}, 5, "c")
    others = [
        ("mem", *point[1:]),
        ("cpu", 1.5, *point[2:]),
        ("cpu", 1.0, {"a": "1"}, 5, "c"),
        ("cpu", 1.0, {"a": "1", "b": "2"}, 6, "c"),
        ("cpu", 1.0, {"a": "1", "b": "2"}, 5, "d"),
    ]

    assert len({point_hash(*one) for one in [point, *others]}) == 6
    assert point_hash("cpu", 1, {"b": "2", "a": "1"}, 5, "c") == point_hash(*point)


def test_a_percentile_lies_between_two_members_in_proportion() -> None:
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"late": 1.5}, "late: 1.5 is not between 0 and 1"),
        ({"late": 0.5, "duplicates": 0.4, "malformed": 0.2}, "more than 1"),
        ({"series": 0}, "one series"),
        ({"late_ms_max": 1_500}, "nothing can be late by less than 1500 ms"),
        ({"interval_ms": 10**12, "late": 0.0}, "leaves the valid times"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidPlan, match=complaint):
        plan(**more)
