"""One record, and its bytes inside a batch.

    length │ attributes 1 │ timestamp delta │ offset delta │ key length │ key │ value length │ value
           │ header count │ { name length │ name │ value length │ value } …

Every length and delta is a zig-zag varint (the timestamp delta a varlong); length -1
stands for null.
"""

from typing import NamedTuple

from penstock.core.records.varints import write_varint

Headers = tuple[tuple[str, bytes | None], ...]


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
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_nullable(body, name.encode("utf-8", "surrogateescape"))
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def _write_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # length -1
    else:
        write_varint(out, len(value))
        out += value
