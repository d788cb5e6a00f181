"""One record, and its bytes inside a batch.

    length │ attributes 1 │ timestamp delta │ offset delta │ key length │ key │ value length │ value
           │ header count │ { name length │ name │ value length │ value } …

Every length and delta is a zig-zag varint (the timestamp delta a varlong); length -1
stands for null. Broken bytes end in `ValueError` with the reason, or `IndexError`
where they end early; the caller adds which record it was.
"""

from typing import NamedTuple

from penstock.core.records.varints import read_varint, read_varlong, write_varint

# Header names are text by contract only. Bytes that are not UTF-8 survive being read
# and written again, which a compacted log depends on.
_UTF8_ERRORS = "surrogateescape"

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as applications see it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# Where the next record starts, offset delta, timestamp delta, key, value, headers. A plain
# tuple, because the compiled reader never has to build it.
ReadRecord = tuple[int, int, int, bytes | None, bytes | None, Headers]


def write_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    """Append one record."""
    body = bytearray(1)  # attributes: no bit of them is in use
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
