"""Variable-length integers of records: seven bits per byte, low bits first, zig-zag for the sign.

value  0  -1   1  -2   63    -64    64        bytes that end early or run on
bytes 00  01  02  03   7e     7f    80 01     past 5 (10 for 64 bits) are refused
"""

from typing import Final

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed integer of up to 64 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def varint_size(value: int) -> int:
    """How many bytes `write_varint` takes for `value`."""
    zigzag = (value << 1) ^ (value >> 63)
    return max(1, (zigzag.bit_length() + 6) // 7)
