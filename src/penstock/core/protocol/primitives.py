"""What generated codecs call where inlined code does not pay: rare cases and errors."""

import functools
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from uuid import UUID

from penstock.core.model import Fault, ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
# What is left of 32 bits after four bytes of seven.
_FIFTH_BYTE_MAX: Final = 0x0F
# Arrays up to this long (replicas, in-sync replicas) are read and written by prepared structs.
SHORT_ARRAY: Final = 16


class TooManyEntries(ProtocolError):
    """A message has more entries in its arrays than its reader allows: it was not read."""


@functools.cache
def unpack_short_arrays(letter: str) -> tuple[Callable[[Buffer, int], tuple[Any, ...]], ...]:
    """Return functions that unpack 0, 1, 2, ... elements."""
    return tuple(struct.Struct(f">{count}{letter}").unpack_from for count in range(SHORT_ARRAY))


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint: its value, and the position after it."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    second = buffer[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    third = buffer[position + 2]
    if third < 0x80:
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, position + 3
    fourth = buffer[position + 3]
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14 | (fourth & 0x7F) << 21
    if fourth < 0x80:
        return value, position + 4
    fifth = buffer[position + 4]
    if fifth > _FIFTH_BYTE_MAX:
        raise ProtocolError("a varint is longer than 32 bits")
    return value | fifth << 28, position + 5


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """Return the position after a tag section of which nothing is known.

    Fields of a newer version are dropped, not kept: no message is sent on as it came.
    """
    count, position = read_varint(buffer, position)
    if count * 2 > end - position:
        raise impossible_count("tags", count, end - position)
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        position += size
        if position > end:
            raise past_the_end("a tagged field", size)
    return position


def skip_counted_tags(buffer: Buffer, position: int, end: int, left: int) -> tuple[int, int]:
    """Likewise, as entries of a message that may have `left` more; returns how many are left then, too."""
    count, _ = read_varint(buffer, position)
    if count > left:
        raise too_many_entries("tags")
    return skip_tags(buffer, position, end), left - count


@functools.lru_cache(maxsize=1024)
def uuid_of(raw: bytes) -> UUID:
    """Return the UUID of 16 bytes; the same few topic ids come with every request."""
    return UUID(bytes=raw)


def past_the_end(what: str, length: int) -> ProtocolError:
    return ProtocolError(f"{what}: {length} bytes are announced, fewer are left")


def impossible_count(what: str, count: int, left: int) -> ProtocolError:
    return ProtocolError(f"{what}: {count} elements cannot fit in the {left} bytes left")


def too_many_entries(what: str) -> TooManyEntries:
    return TooManyEntries(f"{what}: the message has more entries than are allowed")


def unexpected_null(what: str, length: int) -> ProtocolError:
    if length == -1:
        return ProtocolError(f"{what}: null where this version allows none")
    return ProtocolError(f"{what}: length {length} is negative")


def tag_mismatch(what: str) -> ProtocolError:
    return ProtocolError(f"{what}: the tagged field is not as long as it says")


def broken(what: str, cause: Exception) -> ProtocolError:
    return ProtocolError(f"{what}: {cause}")


@functools.cache
def pack_short_arrays(letter: str) -> tuple[Callable[..., bytes], ...]:
    """Return functions that pack 0, 1, 2, ... elements."""
    return tuple(struct.Struct(f">{count}{letter}").pack for count in range(SHORT_ARRAY))


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint: seven bits a byte, lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def unsupported_field(message: str, field: str) -> ProtocolError:
    """A field is set that this version does not have, and that must not be lost."""
    return ProtocolError(f"{message} cannot carry {field}", Fault.OURS)


def unencodable(message: str, cause: Exception) -> ProtocolError:
    return ProtocolError(f"{message}: {cause}", Fault.OURS)
