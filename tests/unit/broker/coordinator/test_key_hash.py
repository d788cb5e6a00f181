"""Keys are kept where Kafka keeps them; the hashes are what a JVM returned."""

import pytest

from penstock.broker.coordinator import coordinators as keys
from penstock.broker.coordinator import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("gruppe-ä", 673522898),
        ("😀", 1772899),
    ],
)
def test_hashes_are_those_of_java(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


@pytest.mark.parametrize(("key", "partition"), [("a", 47), ("hello", 22), ("", 0), ("polygenelubricants", 0)])
def test_the_partition_is_the_positive_hash_modulo_their_number(key: str, partition: int) -> None:
    assert partition_of(key, 50) == partition


def test_the_partition_of_a_long_key_is_not_remembered() -> None:
    remembered = keys._remembered_partition_of.cache_info().currsize

    partitions = {partition_of("x" * length, 50) for length in range(5_000, 5_020)}

    assert len(partitions) > 1
    assert keys._remembered_partition_of.cache_info().currsize == remembered
