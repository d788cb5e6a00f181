"""Which partition a record goes to, where the client chooses itself."""

import pytest

from penstock.client.partitioner import RoundRobin, Sticky, choose, key_hash

KEY = b"21"


def test_round_robin_goes_through_the_partitions_of_each_topic() -> None:
    partitioner = RoundRobin()

    assert [partitioner("a", KEY, 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert partitioner("b", None, 3) == 0


def test_sticky_stays_for_so_many_records_or_so_long() -> None:
    now = 0.0
    partitioner = Sticky(records=2, seconds=1.0, clock=lambda: now)

    assert [partitioner("a", KEY, 3) for _ in range(5)] == [0, 0, 1, 1, 2]
    now = 0.9
    assert partitioner("a", KEY, 3) == 2
    now = 2.0
    assert [partitioner("a", KEY, 3) for _ in range(2)] == [0, 0]
    now = 3.5
    assert partitioner("a", KEY, 3) == 1


def test_the_hash_of_a_key_is_that_of_the_java_client() -> None:
    # murmur2 of "21" is -973932308 in Kafka's own tests, whose sign bit is dropped.
    assert key_hash("a", KEY, 1_000) == (-973_932_308 & 0x7FFF_FFFF) % 1_000
    assert key_hash("a", None, 7) == 0


@pytest.mark.parametrize("name", ["key-hash", "key_hash"])
def test_librdkafka_hashes_keys_itself(name: str) -> None:
    assert choose(name) == ("murmur2_random", None)
    assert choose("consistent_random") == ("consistent_random", None)
    assert choose(None) == (None, None)


def test_ours_are_chosen_by_name_or_given() -> None:
    assert isinstance(choose("round_robin")[1], RoundRobin)
    assert isinstance(choose("sticky")[1], Sticky)
    assert choose(key_hash) == (None, key_hash)
