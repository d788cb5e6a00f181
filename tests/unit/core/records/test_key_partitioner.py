"""Keys land where the Java client puts them."""

import pytest

from penstock.core.records import murmur2_partition
from penstock.core.records.partitioner import murmur2

# Signed results that the Java client's own tests state.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hash_signed"), JAVA_HASHES.items())
def test_hashes_are_those_of_the_java_client(key: bytes, hash_signed: int) -> None:
    assert murmur2(key) == hash_signed % 2**32


@pytest.mark.parametrize(("key", "hash_signed"), JAVA_HASHES.items())
def test_the_sign_is_dropped_not_negated(key: bytes, hash_signed: int) -> None:
    assert murmur2_partition(key, 1000) == (hash_signed & 0x7FFFFFFF) % 1000


def test_an_empty_key_has_a_partition() -> None:
    assert 0 <= murmur2_partition(b"", 7) < 7
