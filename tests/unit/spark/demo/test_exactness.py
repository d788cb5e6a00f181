from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.client import ConsumedRecord
from penstock.client.dead_letters import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC
from penstock.spark.demo import check_dead_letters, check_raw, compare, expected_windows
from penstock.spark.generator import GeneratorAccount, GeneratorPlan, MetricStream
from penstock.spark.generator.expected import open_points, read_points

KEY = (60, "cpu", (("host", "a"),), 1_200_000)
NUMBERS = (4, 10.0, 1.0, 4.0, 2.5, 3.8, 3.9)


@pytest.fixture
def made(tmp_path: Path) -> tuple[GeneratorAccount, Path]:
    """Five hundred points, and the generator's account of them."""
    path = tmp_path / "points.parquet"
    with open_points(path) as points:
        stream = MetricStream(GeneratorPlan(500, 1_790_000_000_000, duplicates=0.05), points.add)
        for _ in stream.intervals():
            pass
    return stream.account, path


def stored(directory: Path, points: Path, leave_out: int = 0, repeat: int = 0, add: float = 0.0) -> str:
    every = list(read_points(points))
    every = every[leave_out:] + every[:repeat]
    write_deltalake(
        directory,
        pa.table(
            {
                "name": [point.name for point in every],
                "value": [point.value + add for point in every],
                "labels": pa.array([point.labels for point in every], pa.map_(pa.string(), pa.string())),
                "timestamp": pa.array(
                    [datetime.fromtimestamp(point.timestamp_ms / 1_000, UTC) for point in every],
                    pa.timestamp("us", tz="UTC"),
                ),
                "client": [point.client for point in every],
            }
        ),
    )
    return str(directory)


def test_a_table_with_every_point_once_is_exact(made: tuple[GeneratorAccount, Path], tmp_path: Path) -> None:
    account, points = made

    check = check_raw(stored(tmp_path / "raw", points), account)

    assert check.is_exact
    assert check.found == check.expected == account.points


@pytest.mark.parametrize(
    ("leave_out", "repeat", "add"), [(1, 0, 0.0), (0, 1, 0.0), (1, 2, 0.0), (0, 0, 0.001)]
)
def test_a_point_that_is_missing_repeated_or_changed_is_seen(
    leave_out: int, repeat: int, add: float, made: tuple[GeneratorAccount, Path], tmp_path: Path
) -> None:
    account, points = made

    check = check_raw(stored(tmp_path / "raw", points, leave_out, repeat, add), account)

    assert not check.is_exact


def test_windows_are_worked_out_for_each_length(made: tuple[GeneratorAccount, Path]) -> None:
    _, points = made

    windows = expected_windows(points, (60_000, 300_000), 2_000_000_000_000)

    assert {key[0] for key in windows} == {60, 300}
    for seconds in (60, 300):
        counted = sum(numbers[0] for key, numbers in windows.items() if key[0] == seconds)
        assert counted == len(list(read_points(points)))


def test_windows_with_the_same_numbers_are_exact() -> None:
    near = (*NUMBERS[:1], NUMBERS[1] * (1 + 1e-12), *NUMBERS[2:])

    assert compare("rollup table", {KEY: NUMBERS}, ({KEY: near}, 1)).is_exact


@pytest.mark.parametrize(
    "found",
    [
        {},
        {KEY: (5, *NUMBERS[1:])},
        {KEY: (*NUMBERS[:6], 3.95)},
        {KEY: NUMBERS, (60, "cpu", (), 0): NUMBERS},
    ],
)
def test_windows_that_are_missing_too_many_or_different_are_seen(found: dict[object, object]) -> None:
    assert not compare("rollup topic", {KEY: NUMBERS}, (found, len(found))).is_exact  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rollup topic", "rollup table"])
def test_a_window_that_is_there_twice_is_a_repeat(name: str) -> None:
    check = compare(name, {KEY: NUMBERS}, ({KEY: NUMBERS}, 2))

    assert (check.is_exact, check.found, check.repeats) == (False, 1, 1)


@pytest.mark.parametrize(
    ("letters", "verdict"),
    [
        ([(0, b"a"), (1, b"b")], (True, 2, 0)),
        ([(0, b"a"), (1, b"b"), (0, b"a")], (False, 2, 1)),
        ([(0, b"a")], (False, 1, 0)),
        ([(0, b"a"), (1, b"c")], (False, 2, 0)),
    ],
)
def test_dead_letters_are_exact_when_each_malformed_value_is_there_once(
    letters: list[tuple[int, bytes]], verdict: tuple[bool, int, int]
) -> None:
    account = GeneratorAccount()
    for value in (b"a", b"b"):
        account.note_malformed(value)

    check = check_dead_letters([dead_letter(offset, value) for offset, value in letters], account)

    assert (check.is_exact, check.found, check.repeats) == verdict


def dead_letter(offset: int, value: bytes) -> ConsumedRecord:
    origin = ((ORIGIN_TOPIC, b"in"), (ORIGIN_PARTITION, b"0"), (ORIGIN_OFFSET, b"%d" % offset))
    return ConsumedRecord(0, 0, None, None, value, origin)
