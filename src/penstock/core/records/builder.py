"""A batch built in one go, for a client that sends many records: no Python call per integer.

`write_batch` is for whoever writes a few records, or writes them again. Here nearly every length
and offset delta comes from a table of its bytes, and the pieces of all records are joined once.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from penstock.core.records.batch import HEADER_BYTES, LAYOUT, MAGIC, PREFIX_BYTES, CompressionType, seal
from penstock.core.records.compression import compress
from penstock.core.records.record import Headers
from penstock.core.records.varints import write_varint

# Key, value, headers, timestamp in milliseconds.
UnplacedRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
_TABLE_SIZE = 16_384
_NULL = b"\x01"
_ZERO = b"\x00"
_CACHED_HEADERS = 4_096


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_VARINTS = tuple(map(_varint, range(_TABLE_SIZE)))


def build_batch(
    records: Sequence[UnplacedRecord],
    *,
    codec: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A sealed batch of these records, numbered from 0; there is at least one."""
    base_timestamp = max_timestamp = records[0][3]
    pieces: list[bytes] = []
    varints = _VARINTS
    stamped, stamp = base_timestamp, _ZERO
    for delta, (key, value, headers, timestamp) in enumerate(records):
        # Records of one call have one time, so most have that of the record before.
        if timestamp != stamped:
            stamped, stamp = timestamp, _varint(timestamp - base_timestamp)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
        number = varints[delta] if delta < _TABLE_SIZE else _varint(delta)
        # What is null has length -1, and no bytes.
        if key is None:
            key_bytes, key = _NULL, b""
        else:
            size = len(key)
            key_bytes = varints[size] if size < _TABLE_SIZE else _varint(size)
        if value is None:
            value_bytes, value = _NULL, b""
        else:
            size = len(value)
            value_bytes = varints[size] if size < _TABLE_SIZE else _varint(size)
        packed = pack_headers(headers) if headers else _ZERO
        size = (
            1
            + len(stamp)
            + len(number)
            + len(key_bytes)
            + len(key)
            + len(value_bytes)
            + len(value)
            + len(packed)
        )
        length = varints[size] if size < _TABLE_SIZE else _varint(size)
        pieces += (length, _ZERO, stamp, number, key_bytes, key, value_bytes, value, packed)
    packed = b"".join(pieces)
    if codec is not CompressionType.NONE:
        packed = bytes(compress(codec, packed))
    batch = bytearray(HEADER_BYTES)
    batch += packed
    count = len(records)
    LAYOUT.pack_into(
        batch,
        0,
        0,
        len(batch) - PREFIX_BYTES,
        -1,
        MAGIC,
        0,
        int(codec),
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    seal(batch, 0, len(batch))
    return batch


@lru_cache(_CACHED_HEADERS)
def pack_headers(headers: Headers) -> bytes:
    """Their count and all of them; the same ones come again and again.

    UnicodeEncodeError if a name is no text.
    """
    out = bytearray()
    write_varint(out, len(headers))
    for name, value in headers:
        octets = name.encode("utf-8", "surrogateescape")
        write_varint(out, len(octets))
        out += octets
        if value is None:
            out += _NULL
        else:
            write_varint(out, len(value))
            out += value
    return bytes(out)
