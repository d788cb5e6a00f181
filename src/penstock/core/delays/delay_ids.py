"""Delay ids: what a client shows to cancel a record that is to be published later.

    01 | partition of `__delayed`, 4 | id, 8        13 bytes: 18 characters of base64url

The id is 63 random bits, of which no other pending delay of the partition has the same. Whoever knows it may
cancel the delay.

    62        48 47                    3 2   0
    │  common   │         its own       │com.│        ids that are chosen together

Delays that are scheduled together have 18 bits in common: the lowest say which partition of `__delayed` keeps
them (`id % partitions`), the highest that they stand together there. So a request is one record of one log,
whose delays are stored and removed at once. A client keeps to a partition for a moment, its *slot*: what it
delays by the same time is due together, and a publisher finds it in one place.
"""

import base64
import binascii
import struct
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.model import ApiError, ErrorKind

VERSION = 1
ID_MAX = 2**63 - 1
_LAYOUT = struct.Struct(">Biq")
_CHARS = 18
# As wide as whole characters: many ids are written at once.
_WIDE_BYTES = 15
_WIDE_CHARS = 20
_START = struct.Struct(">Bi")
ID_BYTES = 8
_COMMON_LOW = 0b111
SLOTS = _COMMON_LOW + 1
SLOT_MS = 256
_OWN = (1 << 48) - 1 - _COMMON_LOW
_PADDING = "=="
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
INVALID_DELAY_ID = ApiError(ErrorKind.INVALID_REQUEST, "this is not the id of a delay")


class DelayId(NamedTuple):
    """Which partition keeps the delay, and under which id."""

    partition: int
    id: int


def slot_at(first: int, now_ms: int) -> int:
    """The slot of a client at this time; clients begin with different ones."""
    return first + now_ms // SLOT_MS


def choose_ids(entropy: bytes, slot: int | None = None) -> tuple[int, ...]:
    """Ids for delays that are scheduled together, rising: one for every `ID_BYTES` random bytes.

    Those of requests with the same slot are kept by the same partition.
    """
    count = len(entropy) // ID_BYTES
    words = struct.unpack(f">{count}Q", entropy)
    common = words[0] & ID_MAX & ~_OWN
    if slot is not None:
        common = common & ~_COMMON_LOW | slot & _COMMON_LOW
    ids = sorted([common | word & _OWN for word in words])
    if len(set(ids)) < count:
        # Once in a hundred million requests of a thousand records: two of them must not be one delay.
        first = min(ids[0], ID_MAX - count)
        return tuple(range(first, first + count))
    return tuple(ids)


def write_delay_ids(partition: int, ids: Sequence[int]) -> list[str]:
    """The ids of delays in one partition, as `write_delay_id` writes each."""
    packed = bytearray(_WIDE_BYTES * len(ids))
    columns = struct.pack(f">{len(ids)}q", *ids)
    # Byte by byte, of all ids at once.
    for at, byte in enumerate(_START.pack(VERSION, partition)):
        packed[at::_WIDE_BYTES] = bytes((byte,)) * len(ids)
    for at in range(ID_BYTES):
        packed[_START.size + at :: _WIDE_BYTES] = columns[at::ID_BYTES]
    text = binascii.b2a_base64(packed, newline=False).translate(_URL_SAFE).decode("ascii")
    return [text[at : at + _CHARS] for at in range(0, len(text), _WIDE_CHARS)]


def write_delay_id(delay_id: DelayId) -> str:
    """The id as clients get it."""
    packed = _LAYOUT.pack(VERSION, *delay_id)
    return binascii.b2a_base64(packed, newline=False).translate(_URL_SAFE).decode("ascii")[:_CHARS]


def read_delay_id(text: str) -> DelayId | ApiError:
    """The id that a client sent; an error for anything that `write_delay_id` does not write."""
    if len(text) != _CHARS:
        return INVALID_DELAY_ID
    try:
        packed = base64.b64decode(text + _PADDING, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return INVALID_DELAY_ID
    version, partition, number = _LAYOUT.unpack(packed)
    found = DelayId(partition, number)
    # The last character has two bits that say nothing.
    if version != VERSION or partition < 0 or number < 0 or write_delay_id(found) != text:
        return INVALID_DELAY_ID
    return found
