"""Which partition of the offsets topic looks after a group.

Kafka's rule, so that its tools find a group's records where they expect them: Java's hash
of the group id, made positive, modulo the number of partitions.
"""

import functools

_BITS = 0xFFFF_FFFF
_SIGN = 0x8000_0000


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (hashed * 31 + (units[at] << 8 | units[at + 1])) & _BITS
    return hashed - (_BITS + 1) if hashed & _SIGN else hashed


@functools.lru_cache(maxsize=4096)
def partition_of(group_id: str, partitions: int) -> int:
    """The partition that coordinates the group; it is asked for with every heartbeat."""
    hashed = java_hash(group_id)
    # The smallest integer has no positive twin in Java: it counts as 0 there.
    return 0 if hashed == -_SIGN else abs(hashed) % partitions
