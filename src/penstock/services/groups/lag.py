"""How far groups are behind: in records, and in seconds."""

from typing import NamedTuple, Protocol

from penstock.core.groups import GroupImage
from penstock.core.model import Offset, PenstockError, Timestamp, TopicPartition
from penstock.core.records import HEADER_BYTES, read_header
from penstock.runtime import Clock
from penstock.services.partitions import Replica
from penstock.storage.log import PartitionLog

_MS_PER_SECOND = 1_000


class NotHere(PenstockError):
    """The group has no position there, or this node has no replica of the partition."""


class Lag(NamedTuple):
    """Where a group stands in one partition.

    `seconds` is the age of the first record that the group has not consumed: 0 when there is
    none. `end` and `records` are -1 where this node has no replica of the partition.
    """

    partition: TopicPartition
    committed: Offset
    end: int = -1
    records: int = -1
    seconds: float = -1.0


class FindLog(Protocol):
    """Where the logs of this node are found, those that it leads and those that it follows."""

    def find_log(self, topic: str, index: int) -> Replica | None: ...


class LagReader:
    """Answers from committed positions and high watermarks, when somebody asks.

    A follower's high watermark is the leader's of a moment ago, which is near enough.

    The time of a record is read from its batch's header, once per position: a group that does
    not move costs nothing at the next scrape.
    """

    def __init__(self, partitions: FindLog, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock
        self._times: dict[tuple[str, TopicPartition], tuple[Offset, Timestamp]] = {}

    def of_group(self, image: GroupImage, group_id: str) -> list[Lag]:
        """Every position of the group, by topic and partition."""
        return [self._lag(image, group_id, partition) for partition in sorted(image.offsets_of(group_id))]

    def records(self, image: GroupImage, group_id: str, name: TopicPartition) -> float:
        log, committed = self._find(image, group_id, name)
        return max(0, log.high_watermark - committed)

    def seconds(self, image: GroupImage, group_id: str, name: TopicPartition) -> float:
        log, committed = self._find(image, group_id, name)
        # What retention has deleted will never be consumed.
        first = max(committed, log.start)
        if first >= log.high_watermark:
            return 0.0
        produced = self._time_of(log, (group_id, name), first)
        return max(0, self._clock.wall() - produced) / _MS_PER_SECOND

    def forget(self, group_id: str, name: TopicPartition) -> None:
        self._times.pop((group_id, name), None)

    def _lag(self, image: GroupImage, group_id: str, name: TopicPartition) -> Lag:
        committed = image.offsets_of(group_id)[name].offset
        replica = self._partitions.find_log(name.topic, name.partition)
        if replica is None:
            return Lag(name, committed)
        return Lag(
            name,
            committed,
            replica.log.high_watermark,
            int(self.records(image, group_id, name)),
            self.seconds(image, group_id, name),
        )

    def _find(self, image: GroupImage, group_id: str, name: TopicPartition) -> tuple[PartitionLog, Offset]:
        position = image.offsets_of(group_id).get(name)
        replica = self._partitions.find_log(name.topic, name.partition)
        if position is None or replica is None:
            raise NotHere(f"group {group_id} in {name}")
        return replica.log, position.offset

    def _time_of(self, log: PartitionLog, key: tuple[str, TopicPartition], offset: Offset) -> Timestamp:
        known = self._times.get(key)
        if known is not None and known[0] == offset:
            return known[1]
        found = log.read(offset, 1).ranges
        if not found:
            raise NotHere(f"offset {offset} of {key[1]}")
        header = read_header(found[0].file.pread(found[0].position, HEADER_BYTES))
        # The batch's first record: records of a batch are as old as each other, give or take a linger.
        time = Timestamp(header.max_timestamp if header.is_log_append_time else header.base_timestamp)
        self._times[key] = (offset, time)
        return time
