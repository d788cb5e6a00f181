"""Columns hold what `penstock.core.records` reads, from every batch that can be written or damaged."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.visible_batches import shown_batches
from penstock.core.records import (
    BatchHeader,
    CompressionType,
    CorruptBatch,
    Record,
    read_header,
    read_records,
    write_batch,
)
from penstock.core.records.record import assemble, rewrite_batch
from penstock.spark.reading import OffsetRange, record_schema
from penstock.spark.reading.decoder import TIMESTAMP_MS_MAX, arrow_batches
from tests.property.records.record_strategies import record_lists, timestamps

ALL = OffsetRange("topic", 7, 0, 1 << 62)


def decoded(batches: list[bytearray], span: OffsetRange = ALL) -> list[dict[str, Any]]:
    headers = [read_header(batch) for batch in batches]
    shown = shown_batches(memoryview(b"".join(batches)), headers, (), span.end)
    rows: list[dict[str, Any]] = []
    for batch in arrow_batches(shown, span, True):
        batch.validate(full=True)
        assert batch.schema == record_schema(True)
        position = batch.schema.get_field_index("timestamp")
        numbers = batch.column(position).cast(pa.int64())
        rows += batch.set_column(position, "timestamp", numbers).to_pylist()
    return rows


def expected(batches: list[bytearray], span: OffsetRange = ALL) -> list[dict[str, Any]]:
    return [
        as_row(record, read_header(batch), span)
        for batch in batches
        for record in read_records(batch)
        if span.start <= record.offset < span.end
    ]


def as_row(record: Record, header: BatchHeader, span: OffsetRange) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": span.topic,
        "partition": span.partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000 if abs(record.timestamp) <= TIMESTAMP_MS_MAX else None,
        "timestampType": int(header.is_log_append_time),
        "headers": [{"key": as_text(name), "value": value} for name, value in record.headers] or None,
    }


def as_text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@st.composite
def logs(draw: st.DrawFn) -> list[bytearray]:
    """Batches in a row, of any codec, some stamped by the broker, some thinned out by compaction."""
    batches, offset = [], draw(st.integers(0, 1 << 40))
    for records in draw(st.lists(record_lists, min_size=1, max_size=4)):
        batch = write_batch(
            records,
            codec=draw(st.sampled_from(CompressionType)),
            base_offset=offset,
            log_append_time=draw(st.none() | timestamps),
        )
        if draw(st.booleans()):
            kept = [record for record in read_records(batch) if draw(st.booleans())]
            batch = rewrite_batch(read_header(batch), kept)
        batches.append(batch)
        offset = read_header(batch).next_offset + draw(st.sampled_from((0, 0, 3)))
    return batches


@given(logs())
def test_columns_hold_what_the_records_hold(batches: list[bytearray]) -> None:
    assert decoded(batches) == expected(batches)


@given(logs(), st.integers(-3, 30), st.integers(-3, 30))
def test_a_span_holds_its_own_offsets_only(batches: list[bytearray], first: int, length: int) -> None:
    base = read_header(batches[0]).base_offset
    span = OffsetRange("topic", 7, max(0, base + first), max(0, base + first) + max(0, length))

    assert decoded(batches, span) == expected(batches, span)


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytearray:
    """A batch whose records were damaged before the CRC was taken."""
    batch = write_batch(draw(record_lists), base_offset=1 << 50)
    payload = batch[61:]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(payload) - 1))
        payload[place] = draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
    payload = payload[: len(payload) - draw(st.sampled_from((0, 0, 0, 1, 5)))]
    count = read_header(batch).record_count + draw(st.sampled_from((0, 0, 0, -1, 1)))
    return assemble(read_header(batch)._replace(record_count=count, last_offset_delta=count + 3), payload)


@given(logs(), damaged_batches())
def test_damaged_records_are_judged_as_the_reader_judges_them(
    before: list[bytearray], damaged: bytearray
) -> None:
    batches = [*before, damaged, write_batch([Record(0, 5, b"after", None)], base_offset=1 << 51)]

    try:
        rows = expected(batches)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            decoded(batches)
    else:
        assert decoded(batches) == rows
