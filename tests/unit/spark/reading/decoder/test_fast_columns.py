"""What the fast way settles by itself, and what it leaves to the exact one."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.client.visible_batches import VisibleBatch
from penstock.core.records import CompressionType, CorruptBatch, Record, read_header, write_batch
from penstock.core.records.record import assemble
from penstock.spark.reading import OffsetRange, record_schema
from penstock.spark.reading.decoder import (
    NotVectorizable,
    arenas,
    arrow_batches,
    locate,
    locate_headers,
    per_record,
)

SPAN = OffsetRange("events", 3, 0, 1 << 40)
USUAL = [
    Record(0, 1_700_000_000_000, b"key", b"x" * 232),
    Record(0, 1_700_000_000_300, None, b"x" * 10),
    Record(0, 1_699_999_999_000, b"", None),
    Record(0, 1_700_000_000_000, b"k" * 70, b"", (("trace", b"1"), ("empty", None))),
    Record(0, 1_700_000_000_000, None, b"y" * 20_000),
    Record(0, 1_700_000_000_000, None, b"z" * 1_100_000),
]


def shown(batch: bytearray) -> VisibleBatch:
    return VisibleBatch(read_header(batch), memoryview(batch))


def is_settled(*batches: bytearray) -> bool:
    (arena,) = arenas([shown(batch) for batch in batches])
    try:
        fields = locate(arena)
        per_record(arena, fields)
        locate_headers(np.frombuffer(arena.octets, np.uint8), fields)
    except NotVectorizable:
        return False
    return True


@pytest.mark.parametrize("codec", CompressionType)
def test_records_as_clients_write_them_are_settled_at_once(codec: CompressionType) -> None:
    batch = write_batch(USUAL, codec=codec, base_offset=100)

    rows = [row for one in arrow_batches([shown(batch)], SPAN, True) for row in one.to_pylist()]

    assert is_settled(batch)
    assert [row["offset"] for row in rows] == [100, 101, 102, 103, 104, 105]
    assert [row["key"] for row in rows] == [record.key for record in USUAL]
    assert [row["value"] for row in rows] == [record.value for record in USUAL]
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == [record.timestamp for record in USUAL]
    assert [row["headers"] for row in rows][2:4] == [
        None,
        [{"key": "trace", "value": b"1"}, {"key": "empty", "value": None}],
    ]


def test_batches_of_one_answer_are_settled_together() -> None:
    batches = [
        write_batch(USUAL, base_offset=offset, codec=codec) for offset, codec in enumerate(CompressionType)
    ]

    assert is_settled(*batches)


def with_payload(payload: bytes, count: int = 1) -> bytearray:
    header = read_header(write_batch([Record(0, 0, None, None)]))
    return assemble(header._replace(record_count=count, last_offset_delta=count - 1), payload)


# length, attributes, timestamp delta, offset delta, key length, value length, header count
PLAIN = bytes((12, 0, 0, 0, 1, 1, 0))


def test_the_shortest_record_is_settled() -> None:
    assert is_settled(with_payload(PLAIN))


def test_a_length_in_more_bytes_than_it_needs_is_legal_and_read_exactly() -> None:
    batch = with_payload(bytes((0x94, 0x80, 0x80, 0x80, 0, 0, 0, 0, 1, 0x80, 0x80, 0x80, 0x80, 0, 0)))

    (columns,) = arrow_batches([shown(batch)], SPAN, False)

    assert not is_settled(batch)
    assert columns.to_pylist()[0]["value"] == b""


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (bytes((11, 0, 0, 0, 1, 1, 0)), 1),  # a negative length
        (bytes((14, 0, 0, 0, 1, 1, 0)), 1),  # longer than the bytes there are
        (bytes((10, 0, 0, 0, 1, 1, 0)), 1),  # shorter than its fields
        (bytes((14, 0, 0, 0, 1, 1, 0, 0)), 1),  # longer than its fields
        (bytes((12, 0, 0, 0, 3, 1, 0)), 1),  # key length -2
        (bytes((12, 0, 0, 0, 1, 5, 0)), 1),  # value length -3
        (bytes((12, 0, 0, 0, 126, 1, 0)), 1),  # a key past the end
        (bytes((12, 0, 0, 0, 1, 1, 1)), 1),  # -1 headers
        (bytes((12, 0, 0, 0, 1, 1, 2)), 1),  # a header that is not there
        (bytes((16, 0, 0, 0, 1, 1, 2, 1, 1)), 1),  # a header without a name
        (bytes((12, 0, 0, 2, 1, 1, 0)), 1),  # an offset behind the last
        (bytes((12, 0, 0, 1, 1, 1, 0)), 1),  # an offset before the first
        (PLAIN + PLAIN, 2),  # an offset twice
        (PLAIN, 2),  # one record too few
        (PLAIN + PLAIN, 1),  # one too many
        (b"\xff" * 12, 1),  # a varint without an end
        (b"", 1),
    ],
)
def test_what_is_no_record_is_left_to_the_exact_way_which_refuses_it(payload: bytes, count: int) -> None:
    batch = with_payload(payload, count)

    assert not is_settled(batch)
    with pytest.raises(CorruptBatch, match="the batch at offset 0: record"):
        list(arrow_batches([shown(batch)], SPAN, True))


def test_a_record_cannot_reach_into_the_next_batch() -> None:
    reaching = with_payload(bytes((26, 0, 0, 0, 1, 14)), 1)
    empty = assemble(read_header(with_payload(PLAIN))._replace(record_count=0, base_offset=5), PLAIN + b"\0")

    with pytest.raises(CorruptBatch, match="the batch at offset 0: record 0"):
        list(arrow_batches([shown(reaching), shown(empty)], SPAN, True))


def test_a_header_name_that_is_not_text_gets_replacement_characters() -> None:
    batch = write_batch([Record(0, 0, None, None, ((b"\xffx".decode("utf-8", "surrogateescape"), b"1"),))])

    (columns,) = arrow_batches([shown(batch)], SPAN, True)

    assert columns.to_pylist()[0]["headers"] == [{"key": "\ufffdx", "value": b"1"}]


def test_more_headers_than_anybody_sends_are_read_all_the_same() -> None:
    many = tuple((f"h{n}", b"%d" % n) for n in range(100))
    batch = write_batch([Record(0, 0, None, None, many), Record(0, 0, None, None)])

    (columns,) = arrow_batches([shown(batch)], SPAN, True)

    assert [len(row["headers"] or ()) for row in columns.to_pylist()] == [100, 0]


@pytest.mark.parametrize("timestamp", [2**62, 2**60, -(2**60), 2**63 - 1])
def test_a_time_that_spark_cannot_hold_is_null(timestamp: int) -> None:
    batch = write_batch([Record(0, timestamp, None, b"1"), Record(0, timestamp - 5, None, b"2")])

    (columns,) = arrow_batches([shown(batch)], SPAN, False)

    assert columns.column("timestamp").null_count == 2
    assert columns.column("value").to_pylist() == [b"1", b"2"]


def test_a_full_arena_is_closed_and_the_next_one_begun() -> None:
    batches = [
        shown(write_batch([Record(0, 0, None, b"x" * 600)], codec=CompressionType.GZIP)) for _ in range(5)
    ]

    laid_out = list(arenas(batches, arena_bytes=1000))

    assert [len(arena.batches) for arena in laid_out] == [2, 2, 1]


def test_batches_without_any_record_give_no_rows() -> None:
    header = read_header(with_payload(PLAIN))
    empty = assemble(header._replace(record_count=0, last_offset_delta=3), b"")

    (columns,) = arrow_batches([shown(empty)], SPAN, True)

    assert columns == pa.RecordBatch.from_pylist([], schema=record_schema(True))
