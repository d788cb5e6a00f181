"""Sets of partitions, by topic id: what members of consumer groups have, shall have and give up.

A partition set is never changed once it is made, and has no topic without partitions, so that two
sets can be compared with `==`. What is stored or sent is sorted (`rows`): the order of a set is
nothing that replicas agree on.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from penstock.core.model import TopicId

PartitionSet: TypeAlias = Mapping[TopicId, frozenset[int]]
PartitionRows: TypeAlias = tuple[tuple[TopicId, tuple[int, ...]], ...]
NO_PARTITIONS: PartitionSet = {}
_NONE: frozenset[int] = frozenset()
# A set of more partitions is seldom had by several.
_SHARED_MAX = 128


def shared_indexes(indexes: frozenset[int]) -> frozenset[int]:
    """An equal set that others have already, if it was asked for lately.

    Thousands of groups may have one member each, and all of them read all of a topic.
    """
    return _shared(indexes) if len(indexes) <= _SHARED_MAX else indexes


@lru_cache(maxsize=1_000)
def _shared(indexes: frozenset[int]) -> frozenset[int]:
    return indexes


def partition_set(rows: Iterable[tuple[TopicId, Iterable[int]]]) -> PartitionSet:
    """The set of these rows; a topic may come more than once."""
    found: dict[TopicId, frozenset[int]] = {}
    for topic_id, partitions in rows:
        indexes = shared_indexes(frozenset(partitions))
        if indexes:
            found[topic_id] = found[topic_id] | indexes if topic_id in found else indexes
    return found


def rows(partitions: PartitionSet) -> PartitionRows:
    """The partitions in the order of topic ids and indexes."""
    return tuple([(topic_id, tuple(sorted(partitions[topic_id]))) for topic_id in sorted(partitions)])


def count(partitions: PartitionSet) -> int:
    return sum(map(len, partitions.values()))


def intersection(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    common = ((topic_id, indexes & right.get(topic_id, _NONE)) for topic_id, indexes in left.items())
    return {topic_id: indexes for topic_id, indexes in common if indexes}


def difference(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    rest = (
        (topic_id, indexes - right[topic_id] if topic_id in right else indexes)
        for topic_id, indexes in left.items()
    )
    return {topic_id: indexes for topic_id, indexes in rest if indexes}


def union(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    if not left or not right:
        return left or right
    both = dict(left)
    for topic_id, indexes in right.items():
        both[topic_id] = both[topic_id] | indexes if topic_id in both else indexes
    return both


def is_subset(inner: PartitionSet, outer: PartitionSet) -> bool:
    return all(indexes <= outer.get(topic_id, _NONE) for topic_id, indexes in inner.items())


def intersects(left: PartitionSet, right: PartitionSet) -> bool:
    return any(not indexes.isdisjoint(right.get(topic_id, _NONE)) for topic_id, indexes in left.items())
