"""Metrics of consumer groups: lag, consumption and rebalances."""

from collections.abc import Iterable
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, Protocol, TypeGuard, assert_never

from penstock.broker.partitions import Replica
from penstock.core.groups import (
    ConsumerGroupDeleted,
    ConsumerGroupStored,
    ConsumerMemberStored,
    Event,
    Fact,
    GroupCoordinator,
    GroupDeleted,
    GroupImage,
    GroupStored,
    GroupType,
    MemberRemoved,
    MembersRemoved,
    OffsetCommitted,
    OffsetDeleted,
    RebalanceCompleted,
    RebalanceStarted,
    ShareFact,
    ShareFactDeleted,
    ShareGroupRemoved,
    ShareGroupStored,
    ShareRecordKind,
    StoredMember,
    TransactionEnded,
)
from penstock.core.model import MILLISECOND, SECOND, Offset, PenstockError, Timestamp, TopicPartition
from penstock.core.records import HEADER_BYTES, read_header
from penstock.observability import Metrics
from penstock.observability import log as events
from penstock.runtime import Clock
from penstock.storage.log import PartitionLog

_MS_PER_SECOND = 1_000
REMEMBERED_MAX = 10_000
MEMBERS_ASKED_MAX = 50
REMEMBERED_CHARS_MAX = 300
REBALANCE_BOUNDS_NS = (
    *(10 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND, 250 * MILLISECOND, 500 * MILLISECOND),
    *(1 * SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, 60 * SECOND, 300 * SECOND),
)


class NoCommittedOffset(PenstockError):
    """The group has no position there, or this node has no replica of the partition."""


class GroupPartitionLag(NamedTuple):
    """Where a group stands in one partition.

    `seconds` is the age of the first record that the group has not consumed: 0 when there is
    none. `end` and `records` are -1 where this node has no replica of the partition.
    """

    partition: TopicPartition
    committed: Offset
    end: int = -1
    records: int = -1
    seconds: float = -1.0


class LogLookup(Protocol):
    """Where the logs of this node are found, those that it leads and those that it follows."""

    def find_log(self, topic: str, index: int) -> Replica | None: ...


class LagReader:
    """Computes lag from committed positions and high watermarks, on demand.

    A follower's high watermark is slightly behind the leader's, which is near enough.

    The time of a record is read from its batch's header, once per position: a group that does
    not move costs nothing at the next scrape.
    """

    def __init__(self, partitions: LogLookup, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock
        self._times: dict[tuple[str, TopicPartition], tuple[Offset, Timestamp]] = {}

    def of_group(self, image: GroupImage, group_id: str) -> list[GroupPartitionLag]:
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

    def _lag(self, image: GroupImage, group_id: str, name: TopicPartition) -> GroupPartitionLag:
        committed = image.offsets_of(group_id)[name].offset
        replica = self._partitions.find_log(name.topic, name.partition)
        if replica is None:
            return GroupPartitionLag(name, committed)
        return GroupPartitionLag(
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
            raise NoCommittedOffset(f"group {group_id} in {name}")
        return replica.log, position.offset

    def _time_of(self, log: PartitionLog, key: tuple[str, TopicPartition], offset: Offset) -> Timestamp:
        known = self._times.get(key)
        if known is not None and known[0] == offset:
            return known[1]
        found = log.read(offset, 1).ranges
        if not found:
            raise NoCommittedOffset(f"offset {offset} of {key[1]}")
        header = read_header(found[0].file.pread(found[0].position, HEADER_BYTES))
        # The batch's first record: records of a batch differ in age by the producer's linger at most.
        time = Timestamp(header.max_timestamp if header.is_log_append_time else header.base_timestamp)
        self._times[key] = (offset, time)
        return time


class GroupMetrics(Metrics):
    """What groups consume, how far they are behind, and how long their rebalances take."""

    def __init__(self) -> None:
        super().__init__()
        position = ("group", "topic", "partition")
        self.rebalance_seconds = self.seconds(
            "penstock_rebalance_seconds",
            "Time from a rebalance's beginning to its assignment.",
            ("group",),
            REBALANCE_BOUNDS_NS,
        )
        self.rebalances = self.counter(
            "penstock_group_rebalances_total",
            "Rebalances that began: joins of classic groups, and epochs of consumer groups.",
            ("type",),
        )
        self.members = self.gauge(
            "penstock_group_members", "Members of a group, as they are stored.", ("group", "type")
        )
        self.epoch = self.gauge(
            "penstock_group_epoch",
            "Generation of a classic group, or epoch of a consumer group.",
            ("group", "type"),
        )
        self.consumed = self.counter(
            "penstock_messages_consumed_total",
            "Records between a group's committed offsets: a commit counts those since the one before.",
            ("group", "topic"),
        )
        self.load_failures = self.counter(
            "penstock_group_load_failures_total",
            "Times that a coordinator's log could not be read; it is tried again.",
            ("partition",),
        )
        self.lag = self.gauge(
            "penstock_consumer_lag",
            "Records between a group's committed offset and the high watermark.",
            position,
        )
        self.lag_seconds = self.gauge(
            "penstock_consumer_lag_seconds",
            "Age of the first record that a group has not consumed; 0 if there is none.",
            position,
        )


class ClientKey(NamedTuple):
    """A client as lookups and members have it in common."""

    client_id: str
    client_host: str


class ConsumptionTracker:
    """Counts the records that groups have consumed, as far as their commits tell.

    A commit counts the records between the position before and the new one. A group's first
    commit in a partition has none before it: there, counting starts at the offset that a member
    looked up, as every stock client without a position does. A reader that chose its own offset
    is counted from its first commit on.
    """

    def __init__(self, metrics: GroupMetrics) -> None:
        self._consumed = metrics.consumed
        # The oldest are evicted first; at worst, a group's first commit is not counted.
        self._begins: dict[tuple[ClientKey, TopicPartition], Offset] = {}

    def __len__(self) -> int:
        return len(self._begins)

    def looked_up(self, reader: ClientKey, partition: TopicPartition, offset: Offset) -> None:
        """A client looked up where to start."""
        if len(reader.client_id) > REMEMBERED_CHARS_MAX:
            return
        key = (reader, partition)
        self._begins.pop(key, None)
        self._begins[key] = offset
        if len(self._begins) > REMEMBERED_MAX:
            del self._begins[next(iter(self._begins))]

    def commits(self, image: GroupImage, fact: OffsetCommitted) -> None:
        """A position is about to become part of the state."""
        before = image.offsets_of(fact.group_id).get(fact.partition)
        begin = before.offset if before is not None else self._begin(image, fact)
        tally = self._consumed.of(fact.group_id, fact.partition.topic)
        tally.count += max(0, fact.offset - begin)

    def _begin(self, image: GroupImage, fact: OffsetCommitted) -> Offset:
        group, consumers = image.groups.get(fact.group_id), image.consumers.get(fact.group_id)
        members: Iterable[StoredMember | ConsumerMemberStored] = () if group is None else group.members
        if consumers is not None:
            members = chain(members, consumers.members.values())
        # Asked for each partition that is committed: in a large group, not all are looked at.
        for member in islice(members, MEMBERS_ASKED_MAX):
            reader = ClientKey(member.client_id, member.client_host)
            begin = self._begins.pop((reader, fact.partition), None)
            if begin is not None:
                return begin
        return fact.offset

    def forget(self, group_id: str, topic: str) -> None:
        """The group's last position in the topic is about to be removed."""
        self._consumed.forget(group_id, topic)


class GroupMetricsRecorder:
    """Observes the facts and events of all group coordinators, for metrics and logs alone."""

    def __init__(self, metrics: GroupMetrics, lags: LagReader, consumption: ConsumptionTracker) -> None:
        self._metrics = metrics
        self._consumption = consumption
        self._lags = lags
        self._shown: dict[tuple[str, TopicPartition], None] = {}
        # How many of a group in a topic.
        self._shown_of: dict[tuple[str, str], int] = {}
        self._groups_shown: dict[tuple[str, GroupType], None] = {}

    def on_fact(self, machine: GroupCoordinator, fact: Fact, *, is_new: bool) -> None:
        """A fact is about to become part of the state; those read from a log are not new."""
        if isinstance(fact, OffsetCommitted):
            self._on_position(machine.image, fact, is_new=is_new)
        elif isinstance(fact, TransactionEnded):
            if fact.is_commit:
                for pending in machine.image.pending.of_producer(fact.producer_id):
                    self._on_position(machine.image, pending.position, is_new=is_new)
        elif isinstance(fact, OffsetDeleted):
            self._on_position_deleted(fact)
        elif isinstance(fact, GroupStored | ConsumerGroupStored | ShareGroupStored):
            self._show_group(machine.image, fact.group_id, _type_of(fact))
        elif isinstance(fact, GroupDeleted | ConsumerGroupDeleted) or _deletes_share_group(fact):
            self._metrics.rebalance_seconds.forget(fact.group_id)
            self._hide_group(fact.group_id, _type_of(fact))

    def _on_position(self, image: GroupImage, position: OffsetCommitted, *, is_new: bool) -> None:
        if is_new:
            self._consumption.commits(image, position)
        if (position.group_id, position.partition) not in self._shown:
            self._show(image, position.group_id, position.partition)

    def _on_position_deleted(self, fact: OffsetDeleted) -> None:
        if self._hide(fact.group_id, fact.partition):
            self._consumption.forget(fact.group_id, fact.partition.topic)

    def on_load_failed(self, partition: TopicPartition) -> None:
        self._metrics.load_failures.of(partition).count += 1

    def on_closed(self, machine: GroupCoordinator) -> None:
        """The coordinator with this state was closed."""
        for group_id, offsets in machine.image.offsets.items():
            for partition in offsets:
                self._hide(group_id, partition)
        for group_id in machine.image.groups:
            self._hide_group(group_id, GroupType.CLASSIC)
        for group_id in machine.image.consumers:
            self._hide_group(group_id, GroupType.CONSUMER)
        for group_id in machine.image.shares:
            self._hide_group(group_id, GroupType.SHARE)

    def on_event(self, event: Event) -> None:
        match event:
            case RebalanceStarted():
                self._metrics.rebalances.of(event.type.value).count += 1
                events.info(
                    "group.rebalance_started",
                    group=event.group_id,
                    generation=event.generation,
                    reason=event.reason,
                )
            case RebalanceCompleted():
                self._metrics.rebalance_seconds.of(event.group_id).observe(event.elapsed_ns)
                events.info(
                    "group.rebalance_completed",
                    group=event.group_id,
                    generation=event.generation,
                    members=event.members,
                )
            case MemberRemoved():
                self.member_removed(event)
            case MembersRemoved():
                events.info(
                    "group.members_removed", group=event.group_id, members=event.members, reason=event.reason
                )
            case ShareGroupRemoved():
                self.share_group_removed(event)
            case _:
                assert_never(event)

    def member_removed(self, event: MemberRemoved) -> None:
        events.info("group.member_removed", group=event.group_id, member=event.member_id, reason=event.reason)

    def share_group_removed(self, event: ShareGroupRemoved) -> None:
        events.info("group.removed", group=event.group_id, topics=len(event.topics))

    def _show_group(self, image: GroupImage, group_id: str, type_: GroupType) -> None:
        if (group_id, type_) in self._groups_shown:
            return
        self._groups_shown[group_id, type_] = None
        self._metrics.members.read(partial(_members, image, group_id, type_), group_id, type_.value)
        self._metrics.epoch.read(partial(_epoch, image, group_id, type_), group_id, type_.value)

    def _hide_group(self, group_id: str, type_: GroupType) -> None:
        if (group_id, type_) in self._groups_shown:
            del self._groups_shown[group_id, type_]
            self._metrics.members.forget(group_id, type_.value)
            self._metrics.epoch.forget(group_id, type_.value)

    def _show(self, image: GroupImage, group_id: str, partition: TopicPartition) -> None:
        self._shown[group_id, partition] = None
        of_topic = group_id, partition.topic
        self._shown_of[of_topic] = self._shown_of.get(of_topic, 0) + 1
        lags, metrics = self._lags, self._metrics
        metrics.lag.read(partial(lags.records, image, group_id, partition), group_id, *partition)
        metrics.lag_seconds.read(partial(lags.seconds, image, group_id, partition), group_id, *partition)

    def _hide(self, group_id: str, partition: TopicPartition) -> bool:
        """Returns whether it was the last position of the group in the topic."""
        if (group_id, partition) not in self._shown:
            return False
        del self._shown[group_id, partition]
        self._lags.forget(group_id, partition)
        self._metrics.lag.forget(group_id, *partition)
        self._metrics.lag_seconds.forget(group_id, *partition)
        of_topic = group_id, partition.topic
        left = self._shown_of.pop(of_topic) - 1
        if left:
            self._shown_of[of_topic] = left
        return not left


def _deletes_share_group(fact: Fact) -> TypeGuard[ShareFactDeleted]:
    return isinstance(fact, ShareFactDeleted) and fact.kind is ShareRecordKind.GROUP


def _type_of(fact: Fact) -> GroupType:
    if isinstance(fact, GroupStored | GroupDeleted):
        return GroupType.CLASSIC
    return GroupType.SHARE if isinstance(fact, ShareFact) else GroupType.CONSUMER


def _members(image: GroupImage, group_id: str, type_: GroupType) -> float:
    if type_ is GroupType.CLASSIC:
        stored = image.groups.get(group_id)
        return 0 if stored is None else len(stored.members)
    typed = image.shares.get(group_id) if type_ is GroupType.SHARE else image.consumers.get(group_id)
    return 0 if typed is None else len(typed.members)


def _epoch(image: GroupImage, group_id: str, type_: GroupType) -> float:
    if type_ is GroupType.CLASSIC:
        stored = image.groups.get(group_id)
        return 0 if stored is None else stored.generation
    typed = image.shares.get(group_id) if type_ is GroupType.SHARE else image.consumers.get(group_id)
    return 0 if typed is None or typed.group is None else typed.group.epoch
