"""Proposes ISR changes for the partitions that this node leads.

`IsrTracker` says what to propose. It is asked when a follower outside the ISR has fetched, and
when a member of the ISR has lagged for too long.

A broker that fails or returns may be a follower of thousands of partitions. So only some proposals are under
way at a time, and the others wait: first come those that somebody waits for, which are never behind many. A
broker is not proposed before the metadata says that it may join: the controller would refuse it for each of
the partitions, over and over.
"""

from collections.abc import Iterable
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from penstock.broker.partitions import LeaderPartition
from penstock.broker.replication.options import ReplicationMetrics, ReplicationOptions, Submit
from penstock.core.metadata import (
    AlteredPartition,
    AlterPartition,
    IsrMember,
    MetadataImage,
    Reply,
    is_internal,
)
from penstock.core.model import MILLISECOND, ApiError, BrokerEpoch, ErrorKind, Instant, NodeId
from penstock.core.replica import UNKNOWN_EPOCH, ProposedIsrMember
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer

# The controller has rejected the proposal. After any other error it is unknown whether the proposal,
# or a copy of it, was or will be accepted.
TURNED_DOWN = (ErrorKind.INELIGIBLE_REPLICA, ErrorKind.INVALID_REQUEST)
# After some proposals that came to nothing the pause before the next one doubles, so often at most: a node
# that leads a thousand partitions would keep a cluster busy that has no controller, or one that is slow. Not
# more often, because the high watermark may wait until it is known what has become of a proposal.
PATIENCE, DOUBLINGS_MAX = 4, 3
# How many proposals are under way, how many more that somebody waits for, and how many partitions are looked
# at in one turn of the loop.
UNDERWAY_MAX, URGENT_MAX, CHECKED_AT_ONCE = 256, 256, 64
_OUTCOMES = {True: "accepted", False: "refused", None: "unknown"}


class IsrCheck(NamedTuple):
    """When to check a partition again; `number` keeps the order of equal times."""

    at: Instant
    number: int
    partition: LeaderPartition


class IsrManager:
    """Submits ISR proposals, one at a time for each partition led here."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: NodeId,
        submit: Submit,
        options: ReplicationOptions,
        metrics: ReplicationMetrics,
    ) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._submit = submit
        self._metrics = metrics
        self._retry_ns = options.proposal_retry_ms * MILLISECOND
        self._broker_epoch = UNKNOWN_EPOCH
        self._image: MetadataImage | None = None
        self._looks: list[IsrCheck] = []
        self._numbers = 0
        # Of several checks of one partition, only the last one requested is made.
        self._last_asked: dict[LeaderPartition, int] = {}
        # Partitions whose proposal is pending or accepted, and the partition epoch it is based on.
        self._proposed: dict[LeaderPartition, int] = {}
        # Those that wait until fewer proposals are under way; the first come first.
        self._urgent: dict[LeaderPartition, None] = {}
        self._waiting: dict[LeaderPartition, None] = {}
        self._is_going_on = False
        # Those that were rejected recently.
        self._pausing: dict[LeaderPartition, None] = {}
        # How many proposals for a partition came to nothing, one after the other.
        self._failures: dict[LeaderPartition, int] = {}
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self, broker_epoch: BrokerEpoch) -> None:
        self._broker_epoch = broker_epoch

    def on_metadata(self, image: MetadataImage) -> None:
        """New metadata was committed, and the partitions have applied it."""
        self._image = image
        for partition, epoch in list(self._proposed.items()):
            if partition.stopped is not None or partition.isr.assignment.partition_epoch > epoch:
                del self._proposed[partition]
                self._failures.pop(partition, None)
                self._look_later(partition)
        self._go_on_soon()

    def roles_changed(self, led: Iterable[LeaderPartition]) -> None:
        """Set the partitions to watch over."""
        for partition in led:
            # Most partitions of a node with thousands have no other replica.
            if partition.isr.is_alone or partition.stopped is not None:
                continue
            if partition in self._urgent or partition in self._waiting:
                continue
            if partition not in self._last_asked and partition not in self._proposed:
                self._look_later(partition)

    def consider(self, partition: LeaderPartition) -> None:
        """Propose another ISR if there is a reason to."""
        if partition in self._proposed or partition in self._pausing or partition.stopped is not None:
            return
        if self._image is None or self._is_stopped:
            return
        is_urgent = partition.is_waited_for or is_internal(partition.name.topic)
        if self._room(is_urgent) <= 0:
            # It may have become urgent while it waited.
            (self._waiting if is_urgent else self._urgent).pop(partition, None)
            (self._urgent if is_urgent else self._waiting)[partition] = None
            return
        self._urgent.pop(partition, None)
        self._waiting.pop(partition, None)
        members = partition.proposal(self._may_join)
        if members is None:
            return
        before = partition.isr.assignment
        command = self._command(partition, self._image, members)
        events.info(
            "partition.isr_proposed",
            partition=str(partition.name),
            isr=[member.node_id for member in command.isr],
            before=list(before.isr),
            leader_epoch=partition.leader_epoch,
        )
        self._proposed[partition] = before.partition_epoch
        self._submit(command, partial(self._ended, partition, before.partition_epoch))

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _room(self, is_urgent: bool) -> int:
        """How many more proposals may be under way now."""
        return UNDERWAY_MAX + (URGENT_MAX if is_urgent else 0) - len(self._proposed)

    def _next(self) -> list[LeaderPartition]:
        """The partitions that wait and have their turn now."""
        for waiting, is_urgent in ((self._urgent, True), (self._waiting, False)):
            found = list(islice(waiting, max(0, min(CHECKED_AT_ONCE, self._room(is_urgent)))))
            if found:
                return found
        return []

    def _go_on_soon(self) -> None:
        """Look at partitions that wait, in the next turn, as far as there is room."""
        if not self._is_going_on and self._next():
            self._is_going_on = True
            self._runtime.timers.soon(self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        for partition in self._next():
            self._urgent.pop(partition, None)
            self._waiting.pop(partition, None)
            self.consider(partition)
            self._considered(partition)
        self._go_on_soon()

    def _considered(self, partition: LeaderPartition) -> None:
        """Without a proposal, check again later."""
        if partition in self._urgent or partition in self._waiting or partition in self._pausing:
            return
        if partition not in self._proposed:
            # There is no reason any more.
            self._failures.pop(partition, None)
        self._look_later(partition)

    def _may_join(self, node_id: NodeId, epoch: BrokerEpoch) -> bool:
        broker = None if self._image is None else self._image.broker(node_id)
        return broker is not None and broker.epoch == epoch and not broker.fenced and not broker.stopping

    def _command(
        self, partition: LeaderPartition, image: MetadataImage, members: tuple[ProposedIsrMember, ...]
    ) -> AlterPartition:
        def epoch_of(member: ProposedIsrMember) -> BrokerEpoch:
            if member.node_id == self._node_id:
                return self._broker_epoch
            broker = image.broker(member.node_id) if member.broker_epoch == UNKNOWN_EPOCH else None
            return member.broker_epoch if broker is None else broker.epoch

        return AlterPartition(
            self._node_id,
            self._broker_epoch,
            partition.topic_id,
            partition.name.partition,
            partition.leader_epoch,
            partition.isr.assignment.partition_epoch,
            tuple(IsrMember(member.node_id, epoch_of(member)) for member in members),
        )

    def _ended(self, partition: LeaderPartition, epoch: int, reply: Reply) -> None:
        kind = reply.kind if isinstance(reply, ApiError) else None
        outcome = _outcome_of(reply)
        self._metrics.proposals.of(_OUTCOMES[outcome]).count += 1
        if self._proposed.get(partition) != epoch:
            # Committed metadata came first.
            return
        if partition.stopped is not None:
            # Nor does the outcome matter any more.
            del self._proposed[partition]
            self._go_on_soon()
            return
        if outcome:
            # It goes on counting as proposed until its metadata is here.
            partition.proposal_ended(accepted=True)
            return
        del self._proposed[partition]
        self._go_on_soon()
        events.info("partition.isr_change_refused", partition=str(partition.name), reason=str(kind))
        self._end_without(partition, accepted=outcome)

    def _end_without(self, partition: LeaderPartition, *, accepted: bool | None) -> None:
        """Try again after a pause."""
        partition.proposal_ended(accepted=accepted)
        self._pausing[partition] = None
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        pause_ns = self._retry_ns << min(max(0, failures - PATIENCE), DOUBLINGS_MAX)
        self._look_at(partition, Instant(self._runtime.clock.now() + pause_ns))

    def _look_later(self, partition: LeaderPartition) -> None:
        """Check again when the first member of its ISR will have lagged for too long."""
        deadline = partition.isr.next_deadline()
        if deadline is not None and partition.stopped is None:
            self._look_at(partition, deadline)

    def _look_at(self, partition: LeaderPartition, at: Instant) -> None:
        self._numbers += 1
        self._last_asked[partition] = self._numbers
        heappush(self._looks, IsrCheck(at, self._numbers, partition))
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looks and not self._is_stopped:
            self._timer = self._runtime.timers.at(self._looks[0].at, self._fired)

    def _fired(self) -> None:
        self._timer = None
        now, left = self._runtime.clock.now(), CHECKED_AT_ONCE
        while self._looks and self._looks[0].at <= now and left:
            _, number, partition = heappop(self._looks)
            if self._last_asked.get(partition) == number:
                left -= 1
                del self._last_asked[partition]
                self._pausing.pop(partition, None)
                self.consider(partition)
                self._considered(partition)
        self._arm()


def _outcome_of(reply: Reply) -> bool | None:
    """Whether the proposal was accepted; None if unknown."""
    if isinstance(reply, AlteredPartition):
        return True
    return False if isinstance(reply, ApiError) and reply.kind in TURNED_DOWN else None
