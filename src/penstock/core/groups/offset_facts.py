"""Facts about positions, and the positions that open transactions have not decided yet.

    pending                       of one group and partition, in the order of the log
    ├── producer 7: 120           a marker commits or drops all that its producer has pending
    └── producer 9: 130

The later record decides, as it does for compaction: a position that is committed or deleted while a
transaction is open supersedes what was pending before it, whatever becomes of the transaction.

The rewrite of a log copies what was decided before, and the copies decide nothing. But compaction keeps the
last record of a key, and knows no copies: a pending position that a copy has overtaken is written once more
before its transaction is committed.

    500 ── 7: 120 ── 500 (copy) ── 7: 120 (copy) ── marker of 7
"""

from collections.abc import Iterator

from penstock.core.model import (
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Timestamp,
    TopicId,
    TopicPartition,
)
from penstock.core.values import dataclass

POSITION_BYTES = 400


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """A group's position in one partition."""

    group_id: str
    partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at: Timestamp
    # Only set by clients that name their own retention (OffsetCommit 2 to 4).
    expires_at: Timestamp | None = None
    topic_id: TopicId | None = None


def metadata_bytes(position: OffsetCommitted) -> int:
    """What the metadata of a position takes in memory: four bytes a character if one needs them."""
    metadata = position.metadata
    return len(metadata) if metadata.isascii() else 4 * len(metadata)


def position_bytes(position: OffsetCommitted) -> int:
    """About what a position takes in memory."""
    return POSITION_BYTES + len(position.group_id) + metadata_bytes(position)


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    """A group has no position in this partition any more."""

    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionalOffsetCommitted:
    """A position that counts once its producer's transaction is committed."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    position: OffsetCommitted


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A marker: the producer's pending positions count from now on, or never."""

    producer_id: ProducerId
    is_commit: bool


class PendingOffsets:
    """The positions of open transactions, by group and partition."""

    __slots__ = ("_by_group", "_by_producer", "_overtaken", "_positions", "metadata_bytes", "size_bytes")

    def __init__(self) -> None:
        # About what they take in memory, and how much of that is metadata.
        self.size_bytes = 0
        self.metadata_bytes = 0
        self._positions = 0
        # Those that have a copy of an earlier position behind them in the log.
        self._overtaken: dict[tuple[str, TopicPartition], dict[ProducerId, None]] = {}
        self._by_group: dict[str, dict[TopicPartition, dict[ProducerId, TransactionalOffsetCommitted]]] = {}
        self._by_producer: dict[ProducerId, dict[tuple[str, TopicPartition], None]] = {}

    def __len__(self) -> int:
        return self._positions

    def __iter__(self) -> Iterator[TransactionalOffsetCommitted]:
        """Those of one group and partition in the order of the log."""
        for partitions in self._by_group.values():
            for producers in partitions.values():
                yield from producers.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def group_ids(self) -> list[str]:
        return list(self._by_group)

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        return list(self._by_group.get(group_id, ()))

    def holds(self, group_id: str, partition: TopicPartition) -> bool:
        return partition in self._by_group.get(group_id, ())

    def get(
        self, group_id: str, partition: TopicPartition, producer_id: ProducerId
    ) -> TransactionalOffsetCommitted | None:
        return self._by_group.get(group_id, {}).get(partition, {}).get(producer_id)

    def of(self, group_id: str, partition: TopicPartition) -> list[TransactionalOffsetCommitted]:
        """In the order of the log."""
        return list(self._by_group.get(group_id, {}).get(partition, {}).values())

    def copies(self) -> Iterator[TransactionalOffsetCommitted]:
        """As the iteration does, but positions may be added and removed meanwhile."""
        keys = [(group_id, each) for group_id, places in self._by_group.items() for each in places]
        for group_id, partition in keys:
            for pending in self.of(group_id, partition):
                known = self.get(group_id, partition, pending.producer_id)
                if known is not None:
                    yield known

    def count_of(self, producer_id: ProducerId) -> int:
        """How many a producer has."""
        return len(self._by_producer.get(producer_id, ()))

    def of_producer(self, producer_id: ProducerId) -> list[TransactionalOffsetCommitted]:
        return [
            self._by_group[group_id][partition][producer_id]
            for group_id, partition in self._by_producer.get(producer_id, ())
        ]

    def overtaken(self) -> list[TransactionalOffsetCommitted]:
        """What has to be copied so that compaction keeps it, in this order."""
        found: list[TransactionalOffsetCommitted] = []
        for place in self._overtaken:
            found += self._from_overtaken(place)
        return found

    def to_copy_before(
        self, fact: TransactionEnded, *, is_rewriting: bool
    ) -> list[TransactionalOffsetCommitted]:
        """What has to be copied before the marker is written, for the marker to decide on the copies.

        All that it commits while the log is rewritten: the records themselves are about to be deleted.
        """
        found: list[TransactionalOffsetCommitted] = []
        for place in self._by_producer.get(fact.producer_id, {}) if fact.is_commit else ():
            if is_rewriting:
                waiting = self.of(*place)
                # What is pending behind it stays behind it.
                found += waiting[waiting.index(self._by_group[place[0]][place[1]][fact.producer_id]) :]
            elif fact.producer_id in self._overtaken.get(place, ()):
                found += self._from_overtaken(place)
        return found

    def _from_overtaken(self, place: tuple[str, TopicPartition]) -> list[TransactionalOffsetCommitted]:
        """The first one that was overtaken, and those behind it, which it must not overtake."""
        waiting, overtaken = self.of(*place), self._overtaken[place]
        first = next(at for at, pending in enumerate(waiting) if pending.producer_id in overtaken)
        return waiting[first:]

    def add(self, fact: TransactionalOffsetCommitted) -> None:
        position = fact.position
        place = position.group_id, position.partition
        producers = self._by_group.setdefault(position.group_id, {}).setdefault(position.partition, {})
        if producers.get(fact.producer_id) == fact:
            # A copy keeps its place.
            self._copied(place, behind=fact.producer_id)
        else:
            # The last one of a producer counts, where it stands in the log.
            before = producers.pop(fact.producer_id, None)
            if before is not None:
                self._count(before.position, -1)
            producers[fact.producer_id] = fact
            self._count(position, 1)
        self._forget_overtaken(place, fact.producer_id)
        self._by_producer.setdefault(fact.producer_id, {})[place] = None

    def committed_copied(self, group_id: str, partition: TopicPartition) -> None:
        """What was committed before everything that is pending was written once more."""
        self._copied((group_id, partition))

    def _copied(self, place: tuple[str, TopicPartition], behind: ProducerId | None = None) -> None:
        is_behind = behind is None
        for producer_id in self._by_group.get(place[0], {}).get(place[1], ()):
            if is_behind:
                self._overtaken.setdefault(place, {})[producer_id] = None
            is_behind = is_behind or producer_id == behind

    def _forget_overtaken(self, place: tuple[str, TopicPartition], producer_id: ProducerId) -> None:
        overtaken = self._overtaken.get(place)
        if overtaken is not None and producer_id in overtaken:
            del overtaken[producer_id]
            if not overtaken:
                del self._overtaken[place]

    def end(self, fact: TransactionEnded) -> list[OffsetCommitted]:
        """The transaction is over: returns the positions that count now."""
        ended = self.of_producer(fact.producer_id)
        for pending in ended:
            position = pending.position
            if fact.is_commit:
                self._supersede(position.group_id, position.partition, fact.producer_id)
            else:
                self._remove(position.group_id, position.partition, fact.producer_id)
        return [pending.position for pending in ended] if fact.is_commit else []

    def supersede(self, group_id: str, partition: TopicPartition) -> None:
        """The position was decided by a later record."""
        for producer_id in list(self._by_group.get(group_id, {}).get(partition, ())):
            self._remove(group_id, partition, producer_id)

    def _supersede(self, group_id: str, partition: TopicPartition, committed: ProducerId) -> None:
        """Remove what a transaction has committed, and what was pending before it."""
        for producer_id in list(self._by_group[group_id][partition]):
            self._remove(group_id, partition, producer_id)
            if producer_id == committed:
                return

    def _remove(self, group_id: str, partition: TopicPartition, producer_id: ProducerId) -> None:
        partitions = self._by_group[group_id]
        producers = partitions[partition]
        self._count(producers.pop(producer_id).position, -1)
        if not producers:
            del partitions[partition]
            if not partitions:
                del self._by_group[group_id]
        self._forget_overtaken((group_id, partition), producer_id)
        places = self._by_producer[producer_id]
        del places[group_id, partition]
        if not places:
            del self._by_producer[producer_id]

    def _count(self, position: OffsetCommitted, sign: int) -> None:
        self._positions += sign
        self.size_bytes += sign * position_bytes(position)
        self.metadata_bytes += sign * metadata_bytes(position)
