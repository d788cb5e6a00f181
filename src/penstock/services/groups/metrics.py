"""The figures of consumer groups: what they are, and how they come about."""

from functools import partial
from typing import NamedTuple, assert_never

from penstock.core.groups import (
    Event,
    Fact,
    GroupCoordinator,
    GroupDeleted,
    GroupImage,
    MemberRemoved,
    OffsetCommitted,
    OffsetDeleted,
    RebalanceCompleted,
    RebalanceStarted,
)
from penstock.core.model import MILLISECOND, SECOND, Offset, TopicPartition
from penstock.observability import Metrics
from penstock.observability import log as events
from penstock.services.groups.lag import LagReader

REMEMBERED_MAX = 10_000
REBALANCE_BOUNDS_NS = (
    *(10 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND, 250 * MILLISECOND, 500 * MILLISECOND),
    *(1 * SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, 60 * SECOND, 300 * SECOND),
)


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


class Reader(NamedTuple):
    """A client as lookups and members have it in common."""

    client_id: str
    client_host: str


class Consumption:
    """Counts the records that groups have consumed, as far as their commits tell.

    A commit counts the records between the position before and the new one. A group's first
    commit in a partition has none before it: there, counting begins where a member was told to
    begin, by the lookup that every stock client without a position makes. Who never asked (a
    reader that chose its own offset) is counted from the first commit on.
    """

    def __init__(self, metrics: GroupMetrics) -> None:
        self._consumed = metrics.consumed
        # The oldest go first; they are forgotten too late at worst, and cost one figure's beginning.
        self._begins: dict[tuple[Reader, TopicPartition], Offset] = {}

    def __len__(self) -> int:
        return len(self._begins)

    def looked_up(self, reader: Reader, partition: TopicPartition, offset: Offset) -> None:
        """A client asked where to begin, and was told."""
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
        group = image.groups.get(fact.group_id)
        for member in group.members if group is not None else ():
            reader = Reader(member.client_id, member.client_host)
            begin = self._begins.pop((reader, fact.partition), None)
            if begin is not None:
                return begin
        return fact.offset

    def deletes(self, image: GroupImage, group_id: str, gone: TopicPartition) -> None:
        """A position is about to go; with the last one of a topic, the figure goes too."""
        left = [partition for partition in image.offsets_of(group_id) if partition != gone]
        if all(partition.topic != gone.topic for partition in left):
            self._consumed.forget(group_id, gone.topic)


class GroupMetricsRecorder:
    """Hears the facts and events of all group coordinators, for metrics and logs alone."""

    def __init__(self, metrics: GroupMetrics, lags: LagReader, consumption: Consumption) -> None:
        self._metrics = metrics
        self._consumption = consumption
        self._lags = lags
        self._shown: dict[tuple[str, TopicPartition], None] = {}

    def on_fact(self, machine: GroupCoordinator, fact: Fact, *, is_new: bool) -> None:
        """A fact is about to become part of the state; those read from a log are not new."""
        if isinstance(fact, OffsetCommitted):
            if is_new:
                self._consumption.commits(machine.image, fact)
            if (fact.group_id, fact.partition) not in self._shown:
                self._show(machine.image, fact.group_id, fact.partition)
        elif isinstance(fact, OffsetDeleted):
            self._hide(fact.group_id, fact.partition)
            self._consumption.deletes(machine.image, fact.group_id, fact.partition)
        elif isinstance(fact, GroupDeleted):
            self._metrics.rebalance_seconds.forget(fact.group_id)

    def on_load_failed(self, partition: TopicPartition) -> None:
        self._metrics.load_failures.of(partition).count += 1

    def on_closed(self, machine: GroupCoordinator) -> None:
        """The coordinator with this state is no more."""
        for group_id, offsets in machine.image.offsets.items():
            for partition in offsets:
                self._hide(group_id, partition)

    def on_event(self, event: Event) -> None:
        match event:
            case RebalanceStarted():
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
                events.info(
                    "group.member_removed", group=event.group_id, member=event.member_id, reason=event.reason
                )
            case _:
                assert_never(event)

    def _show(self, image: GroupImage, group_id: str, partition: TopicPartition) -> None:
        self._shown[group_id, partition] = None
        lags, metrics = self._lags, self._metrics
        metrics.lag.read(partial(lags.records, image, group_id, partition), group_id, *partition)
        metrics.lag_seconds.read(partial(lags.seconds, image, group_id, partition), group_id, *partition)

    def _hide(self, group_id: str, partition: TopicPartition) -> None:
        self._shown.pop((group_id, partition), None)
        self._lags.forget(group_id, partition)
        self._metrics.lag.forget(group_id, *partition)
        self._metrics.lag_seconds.forget(group_id, *partition)
