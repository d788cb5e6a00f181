"""Which partition a key belongs to, as the Java client computes it.

Every server hashes keys the same way, so that a record sent over REST lands where a
Kafka producer would put it. The hash is murmur2 (32 bits) with the Java client's seed.
"""

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The unsigned 32-bit hash of `key`."""
    length = len(key)
    h = _SEED ^ length
    tail = length & ~3
    for position in range(0, tail, 4):
        k = key[position] | key[position + 1] << 8 | key[position + 2] << 16 | key[position + 3] << 24
        k = (k * _MULTIPLIER) & _MASK
        k = ((k ^ (k >> 24)) * _MULTIPLIER) & _MASK
        h = ((h * _MULTIPLIER) & _MASK) ^ k
    if length > tail:
        for position in range(length - 1, tail - 1, -1):
            h ^= key[position] << 8 * (position - tail)
        h = (h * _MULTIPLIER) & _MASK
    h = ((h ^ (h >> 13)) * _MULTIPLIER) & _MASK
    return h ^ (h >> 15)


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition of `key`; the hash loses its sign bit, as Java's `toPositive` does."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
