"""Facts one after the other, each behind its length: in entries of the quorum's log, and in snapshots."""

import struct
from collections.abc import Iterable

from penstock.core.metadata import Fact, decode_fact, encode_fact
from penstock.core.model import CorruptionError

_LENGTH = struct.Struct("<I")


def write_facts(facts: Iterable[Fact]) -> list[bytes]:
    """The parts, to be joined."""
    parts: list[bytes] = []
    for fact in facts:
        content = encode_fact(fact)
        parts += (_LENGTH.pack(len(content)), content)
    return parts


def read_facts(payload: bytes | memoryview, position: int, what: str) -> list[Fact]:
    """The facts from `position` to the end, or CorruptionError about `what`."""
    facts: list[Fact] = []
    while position < len(payload):
        start = position + _LENGTH.size
        if start > len(payload):
            raise CorruptionError(f"{what} inside a length")
        position = start + _LENGTH.unpack_from(payload, start - _LENGTH.size)[0]
        if position > len(payload):
            raise CorruptionError(f"{what} inside a fact")
        facts.append(decode_fact(payload[start:position]))
    return facts
