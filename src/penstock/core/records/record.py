"""One record, and its bytes inside a batch.

    length │ attributes 1 │ timestamp delta │ offset delta │ key length │ key │ value length │ value
           │ header count │ { name length │ name │ value length │ value } …

Every length and delta is a zig-zag varint (the timestamp delta a varlong); length -1
stands for null. Broken bytes end in `ValueError` with the reason, or `IndexError`
where they end early; the caller adds which record it was.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.core.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LAYOUT,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    CompressionType,
    InvalidRecord,
    read_header,
    seal,
)
from penstock.core.records.compression import LIMIT_BYTES, compress, unpack_payload
from penstock.core.records.varints import read_varint, read_varlong, write_varint

# Header names are text by contract only. Bytes that are not UTF-8 survive being read
# and written again, which a compacted log depends on.
_UTF8_ERRORS = "surrogateescape"
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
Headers = tuple[tuple[str, bytes | None], ...]
# Where the next record starts, offset delta, timestamp delta, key, value, headers. A plain
# tuple, because the compiled reader never has to build it.
ReadRecord = tuple[int, int, int, bytes | None, bytes | None, Headers]


class Record(NamedTuple):
    """A record as applications see it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def write_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    """Append one record."""
    body = bytearray(1)  # attributes: no bit of them is in use
    if not _INT64_MIN <= timestamp_delta <= _INT64_MAX:
        timestamp_delta = wrapped(timestamp_delta)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_nullable(body, name.encode("utf-8", _UTF8_ERRORS))
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def wrapped(number: int) -> int:
    """The number in 64 bits. Nobody checks timestamps; Kafka's clients add them up like this as well."""
    return ((number - _INT64_MIN) & ((1 << 64) - 1)) + _INT64_MIN


def _write_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # length -1
    else:
        write_varint(out, len(value))
        out += value


def read_record(payload: bytes, position: int) -> ReadRecord:
    """Read the record at `position` of uncompressed records."""
    length, position = read_varint(payload, position)
    end = position + length
    if length < 0 or end > len(payload):
        raise ValueError(f"length {length} does not fit into the {len(payload) - position} bytes left")
    timestamp_delta, position = read_varlong(payload, position + 1)
    offset_delta, position = read_varint(payload, position)
    key, position = _read_nullable(payload, position, end)
    value, position = _read_nullable(payload, position, end)
    header_count, position = read_varint(payload, position)
    headers: Headers = ()
    if header_count:
        headers, position = _read_headers(payload, position, end, header_count)
    if position != end:
        raise ValueError(f"length {length} is off by {end - position} bytes")
    return end, offset_delta, timestamp_delta, key, value, headers


def _read_nullable(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length < 0:
        if length != -1:
            raise ValueError(f"field length {length} is less than -1")
        return None, position
    if position + length > end:
        raise ValueError(f"field length {length} runs past the end of the record")
    return payload[position : position + length], position + length


def _read_headers(payload: bytes, position: int, end: int, count: int) -> tuple[Headers, int]:
    if count < 0 or count > end - position:
        raise ValueError(f"header count {count} is impossible")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_nullable(payload, position, end)
        if name is None:
            raise ValueError("header name is null")
        value, position = _read_nullable(payload, position, end)
        headers.append((name.decode("utf-8", _UTF8_ERRORS), value))
    return tuple(headers), position


def read_records(batch: Buffer, limit_bytes: int = LIMIT_BYTES) -> Iterator[Record]:
    """The records of the one batch at the start of `batch`, decoded as they are iterated.

    Compressed records are unpacked at once, `limit_bytes` at most. The CRC is not checked:
    the log has done that before. Gaps between offsets are fine, because compaction makes
    them; offsets that do not grow are not.
    """
    header = read_header(batch)
    return _decode(unpack_payload(batch, header, limit_bytes), header)


def _decode(payload: bytes, header: BatchHeader) -> Iterator[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    position, last_delta = 0, -1
    for index in range(header.record_count):
        try:
            position, delta, timestamp_delta, key, value, headers = read_record(payload, position)
        except ValueError as broken:
            raise InvalidRecord(index, str(broken)) from None
        except IndexError:
            raise InvalidRecord(index, "the records end early") from None
        if not last_delta < delta <= header.last_offset_delta:
            raise InvalidRecord(
                index, f"offset delta {delta} after {last_delta}, of {header.last_offset_delta}"
            )
        last_delta = delta
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            timestamp = wrapped(timestamp)
        yield Record(base_offset + delta, timestamp, key, value, headers)
    if position != len(payload):
        raise InvalidRecord(header.record_count, f"{len(payload) - position} bytes follow the last record")


def write_batch(  # noqa: PLR0913 - one keyword per header field that a writer may choose
    records: Iterable[Record],
    *,
    codec: CompressionType = CompressionType.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A sealed batch of `records`, numbered from `base_offset` in the order given.

    The records' own offsets are ignored: a producer does not know them yet.
    """
    records = list(records)
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    payload = bytearray()
    for delta, record in enumerate(records):
        write_record(payload, record, delta, record.timestamp - base_timestamp)
    attributes = int(codec) | (TRANSACTIONAL if transactional else 0)
    max_timestamp = max(record.timestamp for record in records)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, payload, level)


def rewrite_batch(
    header: BatchHeader, records: Iterable[Record], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """The batch of `header` with only `records` left, each at the offset it always had.

    This is what compaction writes. The batch keeps its range of offsets, its producer
    and its sequences even when no record is left, so that a restart still knows the last
    sequence. With `delete_horizon_ms`, the base timestamp says when tombstones may go.
    """
    records = list(records)
    payload = bytearray()
    base_timestamp = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    for record in records:
        write_record(payload, record, record.offset - header.base_offset, record.timestamp - base_timestamp)
    attributes = header.attributes if delete_horizon_ms is None else header.attributes | DELETE_HORIZON
    max_timestamp = header.max_timestamp
    if records and not header.is_log_append_time:
        max_timestamp = max(record.timestamp for record in records)
    if not records:
        attributes &= ~CODEC_MASK  # nothing is left that could be packed
    kept = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return assemble(kept, payload)


def assemble(header: BatchHeader, payload: bytes | bytearray, level: int | None = None) -> bytearray:
    """Header and records as one sealed batch, compressed as the header says."""
    packed = compress(header.codec, payload, level)
    size_bytes = HEADER_BYTES + len(packed)
    batch = bytearray(LAYOUT.pack(*header._replace(batch_length=size_bytes - PREFIX_BYTES)))
    batch += packed
    seal(batch, 0, size_bytes)
    return batch
