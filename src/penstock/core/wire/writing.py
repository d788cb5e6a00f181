"""What generated encoders call when inlined code does not pay."""

import functools
import struct
from collections.abc import Callable

from penstock.core.model import Fault, ProtocolError
from penstock.core.wire.reading import SHORT_ARRAY


@functools.cache
def short_arrays(letter: str) -> tuple[Callable[..., bytes], ...]:
    """Answer functions that pack 0, 1, 2, ... elements."""
    return tuple(struct.Struct(f">{count}{letter}").pack for count in range(SHORT_ARRAY))


def write_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint: seven bits a byte, lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def absent(message: str, field: str) -> ProtocolError:
    """The message says something that this version has no words for, and that must not be lost."""
    return ProtocolError(f"{message} cannot carry {field}", Fault.OURS)


def unfit(message: str, cause: Exception) -> ProtocolError:
    return ProtocolError(f"{message}: {cause}", Fault.OURS)
