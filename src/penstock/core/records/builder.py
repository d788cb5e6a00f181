"""A batch built in one go, for whoever writes many records: no Python call per integer.

`write_batch` is for a few records, or for those that are written again. Here nearly every length
and offset delta comes from a table of its bytes, and the pieces of all records are joined once.

A record's *body* is what does not depend on the batch that it stands in: key, value and headers.

    length │ attributes │ timestamp delta │ offset delta │ body

Records that wait to be published are kept as bodies (`pack_body`), and become a batch without being
decoded (`join_bodies`).
"""

from collections.abc import Sequence
from typing import TypeAlias

from penstock.core.records.batch import (
    HEADER_BYTES,
    LAYOUT,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    CompressionType,
    seal,
)
from penstock.core.records.compression import compress
from penstock.core.records.record import Headers
from penstock.core.records.varints import read_varint, write_varint

# Key, value, headers, timestamp in milliseconds.
UnplacedRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
_TABLE_SIZE = 16_384
_NULL = b"\x01"
_ZERO = b"\x00"
_ZEROS = b"\x00\x00"
# The first byte of a body without a key.
NO_KEY = _NULL[0]
_CACHED_HEADERS = 4_096
_CACHED_HEADERS_BYTES = 1_000
_packed_headers: dict[Headers, bytes] = {}


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
    return _sealed(
        b"".join(pieces),
        len(records),
        codec=codec,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def join_bodies(  # noqa: PLR0913 - as `_sealed`
    bodies: Sequence[bytes],
    timestamp: int,
    *,
    codec: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A sealed batch of the records with these bodies, numbered from 0; there is at least one."""
    pieces: list[bytes] = []
    varints = _VARINTS
    for delta, body in enumerate(bodies):
        number = varints[delta] if delta < _TABLE_SIZE else _varint(delta)
        size = 2 + len(number) + len(body)
        # Between them: no attributes, and the time of all.
        pieces += (varints[size] if size < _TABLE_SIZE else _varint(size), _ZEROS, number, body)
    return _sealed(
        b"".join(pieces),
        len(bodies),
        codec=codec,
        attributes=TRANSACTIONAL if transactional else 0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def pack_body(key: bytes | None, value: bytes | None, headers: Headers = ()) -> bytes:
    """The body of a record; UnicodeEncodeError if the name of a header is no text."""
    if key is None:
        key_bytes, key = _NULL, b""
    else:
        size = len(key)
        key_bytes = _VARINTS[size] if size < _TABLE_SIZE else _varint(size)
    if value is None:
        value_bytes, value = _NULL, b""
    else:
        size = len(value)
        value_bytes = _VARINTS[size] if size < _TABLE_SIZE else _varint(size)
    return b"".join((key_bytes, key, value_bytes, value, _pack_headers(headers) if headers else _ZERO))


def key_of(body: bytes) -> bytes | None:
    """The key in a body that `pack_body` wrote."""
    length, start = read_varint(body, 0)
    return None if length < 0 else body[start : start + length]


def _sealed(  # noqa: PLR0913 - one keyword per header field that a writer may choose
    payload: bytes,
    count: int,
    *,
    codec: CompressionType,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    attributes: int = 0,
) -> bytearray:
    if codec is not CompressionType.NONE:
        payload = bytes(compress(codec, payload))
    batch = bytearray(HEADER_BYTES)
    batch += payload
    LAYOUT.pack_into(
        batch,
        0,
        0,
        len(batch) - PREFIX_BYTES,
        -1,
        MAGIC,
        0,
        int(codec) | attributes,
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


def pack_headers(headers: Headers) -> bytes:
    """Their count and all of them; the same ones come again and again, if they are short.

    UnicodeEncodeError if a name is no text.
    """
    packed = _packed_headers.get(headers)
    if packed is None:
        packed = _pack_headers(headers)
        if len(packed) <= _CACHED_HEADERS_BYTES:
            if len(_packed_headers) >= _CACHED_HEADERS:
                _packed_headers.clear()
            _packed_headers[headers] = packed
    return packed


def _pack_headers(headers: Headers) -> bytes:
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
