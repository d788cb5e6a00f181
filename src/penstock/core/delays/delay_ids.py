"""Delay ids: what a client shows to cancel a record that is to be published later.

    01 | partition of `__delayed`, 4 | id, 8        13 bytes: 18 characters of base64url

The id is 63 random bits, of which no other pending delay of the partition has the same. Whoever knows it may
cancel the delay.
"""

import base64
import binascii
import struct
from typing import NamedTuple

from penstock.core.model import ApiError, ErrorKind

VERSION = 1
ID_MAX = 2**63 - 1
_LAYOUT = struct.Struct(">Biq")
_CHARS = 18
_PADDING = "=="
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
INVALID_DELAY_ID = ApiError(ErrorKind.INVALID_REQUEST, "this is not the id of a delay")


class DelayId(NamedTuple):
    """Which partition keeps the delay, and under which id."""

    partition: int
    id: int


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
