"""How valid inputs are damaged."""

import random
import struct
from collections.abc import Callable, Iterator

_HOSTILE_VALUES = (
    -1,
    -2,
    0,
    1,
    0x7F,
    0x80,
    0x7FFF,
    -0x8000,
    0x7FFFFFF,
    0x7FFFFFFF,
    -0x80000000,
    2**63 - 1,
    -(2**63),
)
_INTEGERS = (">b", ">h", ">i", ">q")


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _spellings() -> Iterator[bytes]:
    """Every way a parser of ours might read one of the hostile values."""
    for value in _HOSTILE_VALUES:
        for form in _INTEGERS:
            if -(1 << 8 * struct.calcsize(form) - 1) <= value < 1 << 8 * struct.calcsize(form) - 1:
                yield struct.pack(form, value)
        yield _varint(value)
        yield _varint(value << 1 ^ value >> 63)
    yield b"\xff" * 11  # a varint without an end


HOSTILE = tuple(dict.fromkeys(_spellings()))


def overwrites(data: bytes) -> Iterator[bytes]:
    """Each hostile value at every position in turn."""
    for position in range(len(data)):
        for value in HOSTILE:
            yield data[:position] + value + data[position + len(value) :]


def _flip_bits(rng: random.Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    for _flip in range(rng.choice((1, 1, 2, 8))):
        bit = rng.randrange(len(out) * 8)
        out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def _overwrite(rng: random.Random, data: bytes, _: bytes) -> bytes:
    position, value = rng.randrange(len(data)), rng.choice(HOSTILE)
    return data[:position] + value + data[position + len(value) :]


def _insert(rng: random.Random, data: bytes, _: bytes) -> bytes:
    position = rng.randrange(len(data) + 1)
    return data[:position] + rng.choice(HOSTILE) + data[position:]


def _count_off(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """A length or count that is wrong by a little."""
    out = bytearray(data)
    position = rng.randrange(len(out))
    out[position] = (out[position] + rng.choice((-2, -1, 1, 2, 64))) % 256
    return bytes(out)


def _cut(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _remove(rng: random.Random, data: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 16) :]


def _repeat(rng: random.Random, data: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(data))
    end = start + rng.randint(1, 64)
    return data[:end] + data[start:end] * rng.randint(1, 8) + data[end:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _append(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data + rng.randbytes(rng.randint(1, 32))


_MUTATIONS: tuple[Callable[[random.Random, bytes, bytes], bytes], ...] = (
    _flip_bits,
    _overwrite,
    _overwrite,
    _insert,
    _count_off,
    _cut,
    _remove,
    _repeat,
    _splice,
    _append,
)


def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Damage `data` once or a few times; `other` is a second valid input to splice with."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if data:
            data = rng.choice(_MUTATIONS)(rng, data, other)
    return data
