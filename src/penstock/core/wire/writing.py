"""What generated encoders call when inlined code does not pay."""

from penstock.core.model import Fault, ProtocolError


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
