"""Variable-length integers of records: seven bits per byte, low bits first, zig-zag for the sign.

    value   0   -1    1   -2   63   -64     64
    bytes  00   01   02   03   7e    7f  80 01

A varint has 32 bits and at most 5 bytes, a varlong 64 bits and at most 10. Bytes that
run on raise `ValueError`, bytes that end early `IndexError`: the caller adds which
record it was.
"""

from typing import Final

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed integer of up to 64 bits; varint and varlong have the same bytes."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def read_varint(payload: bytes, position: int) -> tuple[int, int]:
    """The 32-bit integer at `position`, and where the next field starts."""
    byte = payload[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(payload, position, _VARINT_BITS)


def read_varlong(payload: bytes, position: int) -> tuple[int, int]:
    """The 64-bit integer at `position`, and where the next field starts."""
    byte = payload[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(payload, position, _VARLONG_BITS)


def _read_long(payload: bytes, position: int, bits: int) -> tuple[int, int]:
    zigzag = 0
    shift = 0
    while True:
        byte = payload[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise ValueError(f"integer runs past {bits} bits")
    if zigzag >> bits:
        raise ValueError(f"integer runs past {bits} bits")
    return (zigzag >> 1) ^ -(zigzag & 1), position
