"""Receipts: what a consumer shows to say which delivery of which record it speaks of.

    01 | topic id, 16 | partition, 4 | offset, 8 | attempt, 2 | token, 8      39 bytes: 52 of base64url

The token is a random number of the acquisition that delivered the record, stored with the lease. A receipt
is good while that lease is: after the lease has ended, or the record was delivered again, its token is not
the record's any more. It survives a change of leaders, as the lease does.

Left out: a signature. A token cannot be guessed, and is checked where the lease is.
"""

import base64
import binascii
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from penstock.core.model import ApiError, ErrorKind, Offset, PartitionIndex, TopicId

VERSION = 1
ATTEMPTS_MAX = 2**16 - 1
TOKEN_MAX = 2**63 - 1
_LAYOUT = struct.Struct(">B16siqHq")
_CHARS = 4 * _LAYOUT.size // 3
_TO_URL = bytes.maketrans(b"+/", b"-_")
INVALID_RECEIPT = ApiError(ErrorKind.INVALID_REQUEST, "this is not a receipt of a delivered message")


class LeaseClaim(NamedTuple):
    """Records as their holder names them: one, or several with consecutive offsets.

    By the token and attempt of their receipts; or, without them, as the consumer that the command names.
    """

    offset: Offset
    attempt: int | None = None
    token: int | None = None
    records: int = 1


def claims_count(claims: Iterable[LeaseClaim]) -> int:
    """How many records these are about."""
    return sum([claim.records for claim in claims])


class Receipt(NamedTuple):
    """One delivery of one record."""

    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    attempt: int
    token: int

    @property
    def claim(self) -> LeaseClaim:
        return LeaseClaim(self.offset, self.attempt, self.token)


def write_receipt(receipt: Receipt) -> str:
    """The receipt as consumers get it."""
    topic_id, partition, offset, attempt, token = receipt
    packed = _LAYOUT.pack(VERSION, topic_id.bytes, partition, offset, attempt, token)
    return binascii.b2a_base64(packed, newline=False).translate(_TO_URL).decode("ascii")


def read_receipts(texts: Sequence[str]) -> list[Receipt | ApiError]:
    """Receipts that a consumer sent, as `read_receipt` reads each of them."""
    joined = "".join(texts)
    if len(joined) == _CHARS * len(texts) and all(len(text) == _CHARS for text in texts):
        try:
            # Each has whole groups of four characters: so has what they make together.
            packed = base64.b64decode(joined, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            packed = b""
        if len(packed) == _LAYOUT.size * len(texts):
            return [_receipt(*fields) for fields in _LAYOUT.iter_unpack(packed)]
    return [read_receipt(text) for text in texts]


def read_receipt(text: str) -> Receipt | ApiError:
    """The receipt that a consumer sent; an error for anything that `write_receipt` does not write."""
    if len(text) != _CHARS:
        return INVALID_RECEIPT
    try:
        packed = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return INVALID_RECEIPT
    if len(packed) != _LAYOUT.size:
        return INVALID_RECEIPT
    return _receipt(*_LAYOUT.unpack(packed))


def _receipt(
    version: int, topic_id: bytes, partition: int, offset: int, attempt: int, token: int
) -> Receipt | ApiError:
    if version != VERSION or partition < 0 or offset < 0 or attempt < 1 or token < 0:
        return INVALID_RECEIPT
    return Receipt(_topic_id(topic_id), PartitionIndex(partition), Offset(offset), attempt, token)


@lru_cache(maxsize=256)
def _topic_id(content: bytes) -> TopicId:
    """Receipts come in lots that share a topic, and making an id takes half of the time."""
    return TopicId(UUID(bytes=content))
