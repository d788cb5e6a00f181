"""Batches that are kept between the offer of their records and the delivery."""

from uuid import UUID

from penstock.broker.queues.record_cache import BATCH_BYTES, RECORD_BYTES, CachedLog, RecordCache
from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, TopicId
from penstock.core.records import IndexedRecords, Record, index_records, write_batch


def log(epoch: int = 0, partition: int = 0) -> CachedLog:
    return TopicId(UUID(int=7)), PartitionIndex(partition), LeaderEpoch(epoch)


def batch(start: int, count: int) -> IndexedRecords:
    records = [Record(0, 0, None, b"x" * 100, ()) for _ in range(count)]
    return index_records(write_batch(records, base_offset=start))


def size_of(count: int) -> int:
    return BATCH_BYTES + count * RECORD_BYTES + len(batch(0, count).payload)


def found(cache: RecordCache, log: CachedLog, offset: int) -> int | None:
    """Where the batch begins."""
    kept = cache.find(log, Offset(offset))
    return None if kept is None else kept.base_offset


def test_what_was_put_is_found_by_log_and_offset() -> None:
    cache = RecordCache()
    cache.put(log(), [batch(10, 3), batch(20, 1)])
    cache.put(log(), [batch(5, 2)])

    assert [found(cache, log(), each) for each in (4, 5, 6, 7, 9, 10, 12, 13, 20, 21)] == [
        *(None, 5, 5, None, None),
        *(10, 10, None, 20, None),
    ]
    assert found(cache, log(epoch=1), 10) is None
    assert found(cache, log(partition=1), 10) is None


def test_the_oldest_are_forgotten_for_the_newest() -> None:
    cache = RecordCache(bytes_max=2 * size_of(10) + 1)
    for start in (0, 10, 30, 20):
        cache.put(log(start % 20), [batch(start, 10)])

    assert cache.size_bytes == 2 * size_of(10)
    assert [found(cache, log(0), each) for each in (0, 20)] == [None, 20]
    assert [found(cache, log(10), each) for each in (10, 30)] == [None, 30]


def test_a_batch_that_is_put_twice_counts_once() -> None:
    cache = RecordCache()
    cache.put(log(), [batch(0, 2)])
    cache.put(log(), [batch(0, 2), batch(2, 2)])

    assert cache.size_bytes == 2 * size_of(2)


def test_a_batch_that_is_larger_than_the_cache_leaves_nothing_behind() -> None:
    cache = RecordCache(bytes_max=50)
    cache.put(log(), [batch(0, 2)])

    assert (cache.size_bytes, found(cache, log(), 0)) == (0, None)


def test_what_two_groups_put_is_forgotten_once() -> None:
    cache = RecordCache(bytes_max=size_of(3))
    cache.put(log(), [batch(0, 2)])
    cache.put(log(), [batch(0, 2)])
    for partition in range(1, 5):
        cache.put(log(partition=partition), [batch(0, 3)])

    assert found(cache, log(), 0) is None
    assert found(cache, log(partition=4), 2) == 0
