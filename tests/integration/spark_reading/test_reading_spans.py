"""Both readers give the records of a span, all of them and no others, as they were sent."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from penstock.spark.errors import DataLost
from penstock.spark.reading import OffsetRange, open_reader, record_schema
from penstock.spark.reading.reader import LibrdkafkaReader, SocketReader
from penstock.spark.reading.spans import ReaderOptions
from tests.integration.spark_reading.conftest import OpenReader
from tests.integration.spark_reading.topics import (
    Sent,
    create,
    delete_records,
    numbered,
    offsets_of,
    recreate,
    rows_of,
    send,
)
from tests.support.nodes import NodeProcess

WITH_HEADERS = ReaderOptions(include_headers=True)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MIXED: list[Sent] = [
    (b"key", b"value", [("trace", b"1"), ("empty", b""), ("null", None)]),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (b"", b"", [("", b"x")]),
    (b"k" * 100, b"v" * 70_000, []),
    ("ключ".encode(), b"\x00\xff" * 300, [("имя", "значение".encode())]),
]


def as_sent(row: dict[str, object]) -> Sent:
    headers = row["headers"] or []
    assert isinstance(headers, list)
    return row["key"], row["value"], [(one["key"], one["value"]) for one in headers]  # type: ignore[return-value]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_as_they_were_sent(
    node: NodeProcess, open_one: OpenReader, topic: str, codec: str
) -> None:
    create(node.kafka, topic)
    send(node.kafka, topic, MIXED * 50, compression_type=codec)

    rows = rows_of(open_one(node.kafka, WITH_HEADERS), OffsetRange(topic, 0, 0, 300))

    assert [as_sent(row) for row in rows] == MIXED * 50
    assert [row["offset"] for row in rows] == list(range(300))
    assert rows[1]["timestamp"] == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {(topic, 0, 0)}


@pytest.fixture(scope="module")
def counted(node: NodeProcess) -> str:
    """A topic of 10,000 records in batches of 100."""
    create(node.kafka, "counted")
    send(node.kafka, "counted", numbered(10_000), batch_num_messages=100)
    return "counted"


@pytest.mark.parametrize(("start", "end"), [(0, 10_000), (250, 251), (1_234, 5_678), (9_999, 10_000), (7, 7)])
def test_a_span_begins_and_ends_in_the_middle_of_batches(
    node: NodeProcess, open_one: OpenReader, counted: str, start: int, end: int
) -> None:
    reader = open_one(node.kafka, ReaderOptions())

    assert offsets_of(reader, OffsetRange(counted, 0, start, end)) == list(range(start, end))


def test_batches_have_the_schema_and_no_more_rows_than_asked_for(
    node: NodeProcess, open_one: OpenReader, counted: str
) -> None:
    reader = open_one(node.kafka, ReaderOptions(rows_max=300))

    batches = list(reader.read(OffsetRange(counted, 0, 0, 10_000)))

    assert all(batch.schema == record_schema(False) for batch in batches)
    assert max(batch.num_rows for batch in batches) == 300
    assert sum(batch.num_rows for batch in batches) == 10_000


def test_a_reader_reads_one_span_after_the_other_even_after_half_of_one(
    node: NodeProcess, open_one: OpenReader, counted: str
) -> None:
    reader = open_one(node.kafka, ReaderOptions(rows_max=100, fetch_bytes_max=4096))

    first = next(iter(reader.read(OffsetRange(counted, 0, 0, 10_000))))

    assert first.column("offset")[0].as_py() == 0
    assert offsets_of(reader, OffsetRange(counted, 0, 500, 700)) == list(range(500, 700))
    assert offsets_of(reader, OffsetRange(counted, 0, 100, 300)) == list(range(100, 300))


def test_answers_smaller_than_a_batch_are_enough(
    node: NodeProcess, open_one: OpenReader, counted: str
) -> None:
    reader = open_one(node.kafka, ReaderOptions(fetch_bytes_max=1))

    assert offsets_of(reader, OffsetRange(counted, 0, 150, 950)) == list(range(150, 950))


def test_the_brokers_clock_is_told_from_the_producers(
    node: NodeProcess, open_one: OpenReader, topic: str
) -> None:
    create(node.kafka, topic, message_timestamp_type="LogAppendTime")
    send(node.kafka, topic, numbered(3))

    rows = rows_of(open_one(node.kafka, ReaderOptions()), OffsetRange(topic, 0, 0, 3))

    assert [row["timestampType"] for row in rows] == [1, 1, 1]
    assert all(row["timestamp"].year > 2020 for row in rows)


def test_gaps_that_compaction_made_are_not_lost_data(node: NodeProcess, topic: str) -> None:
    eager = {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0.01"}
    create(node.kafka, topic, **eager)
    send(node.kafka, topic, [(b"k%d" % (n % 3), b"%d" % n, []) for n in range(90)], batch_num_messages=2)
    wire = SocketReader(node.kafka, ReaderOptions())
    client = LibrdkafkaReader({"bootstrap.servers": node.kafka}, ReaderOptions())

    for _ in range(600):
        if len(offsets_of(wire, OffsetRange(topic, 0, 0, 90))) < 90:
            break
        time.sleep(0.1)
    found = [offsets_of(reader, OffsetRange(topic, 0, 0, 90)) for reader in (wire, client)]

    for offsets in found:
        assert 3 <= len(offsets) < 90
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == 89
    wire.close()
    client.close()


def lost(read: Iterable[object]) -> tuple[int, int]:
    with pytest.raises(DataLost) as caught:
        list(read)
    return caught.value.start, caught.value.end


def test_offsets_below_the_start_of_the_log_are_named_as_lost(
    node: NodeProcess, open_one: OpenReader, topic: str
) -> None:
    create(node.kafka, topic)
    send(node.kafka, topic, numbered(100), batch_num_messages=10)
    delete_records(node.kafka, topic, before=37)
    reader = open_one(node.kafka, ReaderOptions())

    assert lost(reader.read(OffsetRange(topic, 0, 5, 80))) == (5, 37)
    assert lost(reader.read(OffsetRange(topic, 0, 5, 30))) == (5, 30)
    assert offsets_of(reader, OffsetRange(topic, 0, 37, 100)) == list(range(37, 100))


def test_records_deleted_while_they_are_read_are_named_as_lost(
    node: NodeProcess, open_one: OpenReader, topic: str
) -> None:
    create(node.kafka, topic)
    send(node.kafka, topic, [(None, b"x" * 10_000, [])] * 900, batch_num_messages=10)
    reader = open_one(node.kafka, ReaderOptions(rows_max=10, fetch_bytes_max=200_000))

    read = reader.read(OffsetRange(topic, 0, 0, 900))
    seen = next(read).column("offset").to_pylist()
    delete_records(node.kafka, topic, before=890)
    start, end = lost(seen.extend(batch.column("offset").to_pylist()) for batch in read)

    assert seen == list(range(start))
    assert end == 890


def test_offsets_behind_the_end_of_the_log_are_named_as_lost(
    node: NodeProcess, open_one: OpenReader, counted: str
) -> None:
    reader = open_one(node.kafka, ReaderOptions(timeout_ms=1500))

    assert lost(reader.read(OffsetRange(counted, 0, 20_000, 20_010))) == (20_000, 20_010)


def test_what_a_recreated_topic_no_longer_reaches_is_named_as_lost(
    node: NodeProcess, open_one: OpenReader, topic: str
) -> None:
    create(node.kafka, topic)
    send(node.kafka, topic, numbered(50))
    recreate(node.kafka, topic)
    send(node.kafka, topic, numbered(20))
    reader = open_one(node.kafka, ReaderOptions(timeout_ms=1500))

    assert lost(reader.read(OffsetRange(topic, 0, 10, 50))) == (20, 50)


def test_a_topic_that_does_not_exist_has_lost_everything(node: NodeProcess, open_one: OpenReader) -> None:
    reader = open_one(node.kafka, ReaderOptions(timeout_ms=1500))

    assert lost(reader.read(OffsetRange("nowhere", 0, 3, 8))) == (3, 8)


def test_the_settings_decide_which_reader_is_opened(node: NodeProcess) -> None:
    plain = open_reader({"bootstrap.servers": node.kafka})
    secured = open_reader({"bootstrap.servers": node.kafka, "security.protocol": "SSL"})
    foreign = open_reader(
        {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
        }
    )

    assert [type(reader) for reader in (plain, secured, foreign)] == [
        SocketReader,
        SocketReader,
        LibrdkafkaReader,
    ]
    for reader in (plain, secured, foreign):
        reader.close()
