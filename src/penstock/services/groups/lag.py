"""How far groups are behind: in records, and in seconds."""

from typing import NamedTuple, Protocol

from penstock.core.groups import GroupImage
from penstock.core.model import Offset, PenstockError, Timestamp, TopicPartition
from penstock.core.records import HEADER_BYTES, read_header
from penstock.runtime import Clock
from penstock.services.partitions import Partition

_MS_PER_SECOND = 1_000


class NotHere(PenstockError):
    """The group has no position there, or another node leads the partition."""


class Lag(NamedTuple):
    """Where a group stands in one partition.

    `seconds` is the age of the first record that the group has not consumed: 0 when there is
    none. `end` and `records` are -1 where another node leads the partition.
    """

    partition: TopicPartition
    committed: Offset
    end: int = -1
    records: int = -1
    seconds: float = -1.0


class FindPartition(Protocol):
    """Where partitions are found that this node leads."""

    def find(self, topic: str, index: int) -> Partition | None: ...


class LagReader:
    """Answers from committed positions and high watermarks, when somebody asks.

    The time of a record is read from its batch's header, once per position: a group that does
    not move costs nothing at the next scrape.
    """

    def __init__(self, partitions: FindPartition, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock
        self._times: dict[tuple[str, TopicPartition], tuple[Offset, Timestamp]] = {}

    def of_group(self, image: GroupImage, group_id: str) -> list[Lag]:
        """Every position of the group, by topic and partition."""
        return [self._lag(image, group_id, partition) for partition in sorted(image.offsets_of(group_id))]

    def records(self, image: GroupImage, group_id: str, name: TopicPartition) -> float:
        partition, committed = self._find(image, group_id, name)
        return max(0, partition.high_watermark - committed)

    def seconds(self, image: GroupImage, group_id: str, name: TopicPartition) -> float:
        partition, committed = self._find(image, group_id, name)
        # What retention has deleted will never be consumed.
        first = max(committed, partition.log.start)
        if first >= partition.high_watermark:
            return 0.0
        produced = self._time_of(partition, group_id, first)
        return max(0, self._clock.wall() - produced) / _MS_PER_SECOND

    def forget(self, group_id: str, name: TopicPartition) -> None:
        self._times.pop((group_id, name), None)

    def _lag(self, image: GroupImage, group_id: str, name: TopicPartition) -> Lag:
        committed = image.offsets_of(group_id)[name].offset
        partition = self._partitions.find(name.topic, name.partition)
        if partition is None:
            return Lag(name, committed)
        return Lag(
            name,
            committed,
            partition.high_watermark,
            int(self.records(image, group_id, name)),
            self.seconds(image, group_id, name),
        )

    def _find(self, image: GroupImage, group_id: str, name: TopicPartition) -> tuple[Partition, Offset]:
        position = image.offsets_of(group_id).get(name)
        partition = self._partitions.find(name.topic, name.partition)
        if position is None or partition is None:
            raise NotHere(f"group {group_id} in {name}")
        return partition, position.offset

    def _time_of(self, partition: Partition, group_id: str, offset: Offset) -> Timestamp:
        key = (group_id, partition.name)
        known = self._times.get(key)
        if known is not None and known[0] == offset:
            return known[1]
        found = partition.log.read(offset, 1).ranges
        if not found:
            raise NotHere(f"offset {offset} of {partition.name}")
        header = read_header(found[0].file.pread(found[0].position, HEADER_BYTES))
        # The batch's first record: records of a batch are as old as each other, give or take a linger.
        time = Timestamp(header.max_timestamp if header.is_log_append_time else header.base_timestamp)
        self._times[key] = (offset, time)
        return time
