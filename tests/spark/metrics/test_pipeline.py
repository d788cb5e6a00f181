"""The whole pipeline, compared with the rules worked out in plain Python."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from penstock.client import BulkProducer, ConsumedRecord, ConsumerOptions, Endpoint, TopicAdmin, TopicConsumer
from penstock.spark.metrics import PIPELINES
from penstock.spark.metrics.configuration import MetricsConfig
from tests.unit.spark.metrics.reference import Measured, Window, measured, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_763_200_020_000
MINUTE_MS = 60_000
LATENESS_MS = 10 * MINUTE_MS
PIPELINE = PIPELINES["metrics"]

# Valid but for the clock that it is of: would it move the watermark, everything after it were late.
FAR_MS = 4_102_444_799_999

MALFORMED = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b'{"name":"cpu"}',
    b'{"name":"cpu","value":"1","timestamp":5,"client":"c"}',
    b'{"name":"cpu","value":1,"timestamp":5,"client":"c","labels":{"a":1}}',
    b'{"name":"cpu","value":1,"timestamp":%d,"client":"c"}' % FAR_MS,
]


def point(index: int, timestamp: int, name: str | None = None) -> bytes:
    host = index % 3
    found = {
        "name": name or ("cpu", "mem")[index % 2],
        "value": (index * 37 % 101) / 7,
        "labels": {"zone": "z", "host": f"h{host}"},
        "timestamp": timestamp,
        "client": f"agent-{host}",
    }
    return json.dumps(found).encode()


def first_wave() -> list[bytes]:
    """Twelve minutes, a tenth of it out of order by up to nine, with repeats and malformed ones between."""
    points = [point(index, START_MS + index * 600) for index in range(1_200)]
    held = {index: points[index] for index in range(100, 1_000, 10)}
    found = [one for index, one in enumerate(points) if index not in held]
    for index, one in held.items():
        found.insert(min(index + index % 900, len(found)), one)
    for index in range(0, 1_100, 50):
        found.insert(index, found[index])
    for index, bad in enumerate(MALFORMED):
        found.insert(index * 150, bad)
    # Before the first batch is done, Spark's watermark is 1970, and that moment is late.
    return [point(0, 0, "late"), *found]


def second_wave() -> list[bytes]:
    """Ten more minutes, repeats of the first wave, what is too late by now, and what closes all windows."""
    newest = START_MS + 1_199 * 600
    points = [point(index, START_MS + index * 600) for index in range(1_200, 2_200)]
    repeats = [point(index, START_MS + index * 600) for index in range(900, 1_200, 30)]
    # The watermark itself is late, and one more millisecond is not.
    edge = [point(0, newest - LATENESS_MS, "late"), point(0, newest - LATENESS_MS + 1), point(0, 1, "late")]
    closing = point(0, START_MS + 10 * 60 * MINUTE_MS)
    return [*edge, *repeats, *points, *MALFORMED[:2], closing]


def send(servers: str, topic: str, values: Iterable[bytes], spread: bool = True) -> None:
    sender = BulkProducer(Endpoint(servers))
    for index, value in enumerate(values):
        sender.send(topic, [value], [b"k%d" % index], index % 2 if spread else 0)
    sender.finish()


def read(servers: str, topic: str) -> list[ConsumedRecord]:
    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions()) as reader:
        return [record for batch in reader.batches() for record in batch]


@pytest.fixture
def config(servers: str, topic_name: str, tmp_path: Path) -> MetricsConfig:
    names = {"inbound": topic_name, "rollup": f"{topic_name}.rollup", "dead_letter": f"{topic_name}.dlq"}
    for name in names.values():
        TopicAdmin(Endpoint(servers)).create(name, 2, 1, {})
    given = {"bootstrap": servers, "state_dir": str(tmp_path), "groups.ingest": topic_name}
    return PIPELINE.configure(None, given | {f"topics.{role}": name for role, name in names.items()})


def run_once(spark: "SparkSession", config: MetricsConfig) -> list[Mapping[str, Any]]:
    progress: list[Mapping[str, Any]] = []
    for query in PIPELINE.start(spark, config, once=True):
        query.awaitTermination()
        progress += query.recentProgress
    return progress


def stored(config: MetricsConfig) -> list[Measured]:
    rows = DeltaTable(config.raw_table).to_pyarrow_table().to_pylist()
    return [
        Measured(
            *(row["name"], row["value"], dict(row["labels"])),
            *(round(row["timestamp"].timestamp() * 1_000), row["client"]),
        )
        for row in rows
    ]


def rolled_up(config: MetricsConfig) -> dict[Window, tuple[float, ...]]:
    rows = DeltaTable(config.rollup_table).to_pyarrow_table().to_pylist()
    found = {
        Window(
            *(row["name"], tuple(sorted(row["labels"]))),
            *(round(row["window_start"].timestamp() * 1_000), row["window_seconds"]),
        ): tuple(row[name] for name in ("count", "sum", "min", "max", "p50", "p95", "p99"))
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def announced(records: list[ConsumedRecord]) -> dict[Window, tuple[float, ...]]:
    rows = [json.loads(record.value or b"") for record in records]
    found = {
        Window(
            *(row["name"], tuple(sorted(row["labels"].items()))), row["window_start"], row["window_seconds"]
        ): tuple(row[name] for name in ("count", "sum", "min", "max", "p50", "p95", "p99"))
        for row in rows
    }
    assert len(found) == len({record.key for record in records}) == len(rows)
    return found


def test_tables_and_topics_are_exactly_what_the_rules_say_also_after_a_restart(
    spark: "SparkSession", servers: str, config: MetricsConfig
) -> None:
    first, second = first_wave(), second_wave()
    found = [measured(value, FAR_MS - 1) for value in [*first, *second]]
    good = {one.identity: one for one in found if one is not None}
    kept = [one for one in good.values() if one.name != "late"]
    closed = {w: n for w, n in windows(kept, (60, 300), (50, 95, 99)).items() if w.start_ms < ends(kept, w)}

    send(servers, config.topics.inbound, first)
    run_once(spark, config)
    send(servers, config.topics.inbound, second)
    progress = run_once(spark, config)
    again = run_once(spark, config)

    assert sum(one["numInputRows"] for one in again) == 0
    dropped = [state["numRowsDroppedByWatermark"] for one in progress for state in one["stateOperators"]]
    assert sum(dropped) == 0
    assert Counter(one.identity for one in stored(config)) == Counter(one.identity for one in kept)
    assert {one.identity: one for one in stored(config)} == {one.identity: one for one in kept}
    assert rolled_up(config) == closed
    assert announced(read(servers, config.topics.rollup)) == closed
    letters = read(servers, config.topics.dead_letter)
    assert Counter(letter.value for letter in letters) == Counter(
        [*MALFORMED, *MALFORMED[:2], first[0], second[0], second[2]]
    )
    assert len({letter.key for letter in letters}) == len(letters)


def ends(rows: Iterable[Measured], window: Window) -> int:
    """Where windows of this length begin that the newest row does not close."""
    watermark = max(row.timestamp for row in rows) - LATENESS_MS
    return watermark - window.seconds * 1_000 + 1


def test_a_rollup_that_has_fallen_behind_reads_some_versions_at_a_time(
    spark: "SparkSession", servers: str, config: MetricsConfig
) -> None:
    small = msgspec.structs.replace(config, max_offsets_per_trigger=10, max_bytes_per_trigger=1)
    points = [point(index, START_MS + index * MINUTE_MS) for index in range(30)]
    kept = [one for one in (measured(value, FAR_MS) for value in points) if one is not None]
    send(servers, config.topics.inbound, points, spread=False)

    progress = run_once(spark, small)

    batches = [one for one in progress if one["name"] == "metrics-rollup" and one["numInputRows"]]
    assert len(batches) == 3
    expected = windows(kept, (60, 300), (50, 95, 99))
    assert rolled_up(config) == {w: n for w, n in expected.items() if w.start_ms < ends(kept, w)}


def test_a_dead_letter_says_where_it_came_from_and_why(
    spark: "SparkSession", servers: str, config: MetricsConfig
) -> None:
    send(servers, config.topics.inbound, [point(0, START_MS), b"oops"], spread=False)

    run_once(spark, config)

    (letter,) = read(servers, config.topics.dead_letter)
    headers = dict(letter.headers)
    assert letter.value == b"oops"
    assert letter.key == f"{config.topics.inbound}/0/1".encode()
    assert headers["penstock-origin-topic"] == config.topics.inbound.encode()
    assert (headers["penstock-origin-partition"], headers["penstock-origin-offset"]) == (b"0", b"1")
    assert headers["penstock-origin-key"] == b"k1"
    assert int(headers["penstock-origin-timestamp"] or 0) > START_MS
    assert headers["penstock-error"] == b"not JSON: invalid character (byte 0)"


def test_windows_are_not_written_a_second_time_when_the_rollups_checkpoint_is_lost(
    spark: "SparkSession", servers: str, config: MetricsConfig
) -> None:
    send(servers, config.topics.inbound, [point(0, START_MS), point(0, START_MS + 60 * MINUTE_MS)])
    run_once(spark, config)
    before = rolled_up(config)
    shutil.rmtree(config.checkpoint_of("metrics-rollup"))

    with pytest.raises(
        StreamingQueryException, match=r"rollup: it has rows of another query.*put the checkpoints back"
    ):
        run_once(spark, config)

    assert len(before) == 2
    assert rolled_up(config) == before
