"""Records that are kept between their offer and their delivery."""

from uuid import UUID

from penstock.broker.queues.record_cache import RECORD_BYTES, CachedLog, RecordCache
from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, TopicId
from penstock.core.records import Record


def log(epoch: int = 0, partition: int = 0) -> CachedLog:
    return TopicId(UUID(int=7)), PartitionIndex(partition), LeaderEpoch(epoch)


def records(start: int, count: int, value: bytes = b"x" * 100) -> list[Record]:
    return [Record(start + number, 0, None, value, ()) for number in range(count)]


def offsets(*numbers: int) -> list[Offset]:
    return [Offset(number) for number in numbers]


def test_what_was_put_is_found_by_log_and_offset() -> None:
    cache = RecordCache()
    cache.put(log(), records(10, 3))

    assert list(cache.find(log(), offsets(9, 10, 12, 13))) == [10, 12]
    assert cache.find(log(epoch=1), offsets(10)) == {}
    assert cache.find(log(partition=1), offsets(10)) == {}


def test_the_oldest_are_forgotten_for_the_newest() -> None:
    cache = RecordCache(bytes_max=25 * (RECORD_BYTES + 100))
    for start in range(0, 100, 10):
        cache.put(log(start % 20), records(start, 10))

    assert cache.size_bytes == 20 * (RECORD_BYTES + 100)
    assert len(cache.find(log(0), offsets(*range(100)))) == 10
    assert list(cache.find(log(10), offsets(*range(100)))) == list(range(90, 100))


def test_a_record_that_is_put_twice_counts_once() -> None:
    cache = RecordCache()
    cache.put(log(), records(0, 2))
    cache.put(log(), records(0, 3))

    assert cache.size_bytes == 3 * (RECORD_BYTES + 100)


def test_records_that_are_larger_than_the_cache_leave_nothing_behind() -> None:
    cache = RecordCache(bytes_max=50)
    cache.put(log(), records(0, 2))

    assert (cache.size_bytes, cache.find(log(), offsets(0, 1))) == (0, {})


def test_what_two_groups_put_is_forgotten_once() -> None:
    cache = RecordCache(bytes_max=3 * (RECORD_BYTES + 100))
    cache.put(log(), records(0, 2))
    cache.put(log(), records(0, 2))
    for partition in range(1, 5):
        cache.put(log(partition=partition), records(0, 3))

    assert cache.find(log(), offsets(0, 1)) == {}
    assert len(cache.find(log(partition=4), offsets(0, 1, 2))) == 3
