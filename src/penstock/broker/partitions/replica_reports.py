"""What this node's logs hold, said to the controller before anyone is elected for it.

    logs are opened ──► ReportReplicas ──► go_live: the broker asks to be unfenced
    a partition loses its leader ──► ReportReplicas, from every broker that has a replica

A report is where the log ends, in which epoch its last record was written, and what was lost of it
since the last start: known from recovery, or because the log is missing. The replica counts as
damaged until it is in sync again, whatever its leader has refilled meanwhile.

A loss that nobody noticed shows later: the leader asks its followers to truncate what they know to be
committed. They do not, and the controller deposes it for one of them, if that one is sure to have
everything else (`DivergenceReporter`).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.broker.partitions.leader_partition import Replica
from penstock.core.metadata import (
    EMPTY_IMAGE,
    NO_LEADER,
    NO_LEADER_EPOCH,
    UNKNOWN_END,
    Command,
    DeposeLeader,
    MetadataImage,
    PartitionReport,
    ReplicaLoss,
    Reply,
    ReportReplicas,
)
from penstock.core.metadata import Partition as PartitionState
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    BrokerEpoch,
    ErrorKind,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
)
from penstock.observability import log as events
from penstock.runtime import Callback, Runtime, Timer
from penstock.storage.log import RecoveryReport

Key: TypeAlias = tuple[TopicId, PartitionIndex]
Submit: TypeAlias = Callable[[Command, Callable[[Reply], None]], None]
# A broker may have thousands of replicas, and one command must not block the controller's loop for long:
# a thousand of them take it a third of a second.
REPORTS_PER_COMMAND = 100
RETRY_MS = 100
DEPOSE_RETRY_MS = 500
REPLACED = (ErrorKind.STALE_BROKER_EPOCH, ErrorKind.UNKNOWN_BROKER)


class FoundLoss(NamedTuple):
    """What recovery found missing in a log, and where the log ended before, if that is known."""

    loss: ReplicaLoss
    former_end: Offset = UNKNOWN_END


LOST_NOTHING = FoundLoss(ReplicaLoss.NOTHING)


def loss_in(report: RecoveryReport) -> FoundLoss:
    """What opening a log has shown."""
    if report.corruption:
        ends = [damage.end for damage in report.corruption]
        # The journal may know more of a growing segment than what is left of it.
        return FoundLoss(ReplicaLoss.RANGE, max([*ends, report.lost.end] if report.lost else ends))
    if report.lost is not None:
        return FoundLoss(ReplicaLoss.TAIL, report.lost.end)
    return FoundLoss(ReplicaLoss.DOUBTFUL) if report.doubt else LOST_NOTHING


class ReplicaReporter:
    """Sends reports, and keeps what was lost until the replica is in sync again."""

    def __init__(self, me: NodeId, runtime: Runtime, logs: Mapping[tuple[TopicId, int], Replica]) -> None:
        self._me = me
        self._runtime = runtime
        self._logs = logs
        self._image = EMPTY_IMAGE
        self._losses: dict[Key, FoundLoss] = {}
        # Logs that are there and cannot be opened: nobody knows what they hold.
        self._not_opened: dict[Key, None] = {}
        self._epoch = BrokerEpoch(-1)
        self._submit: Submit | None = None
        self._done: Callback | None = None
        self._waiting: dict[Key, None] = {}
        # What was said last of a partition without a leader, so that it is not repeated.
        self._said: dict[Key, PartitionReport] = {}
        self._is_underway = False
        self._timer: Timer | None = None

    def on_opened(self, key: Key, report: RecoveryReport) -> None:
        """A log was opened, and this was found."""
        self._not_opened.pop(key, None)
        found = loss_in(report)
        former = self._losses.get(key, LOST_NOTHING)
        if former.loss is ReplicaLoss.EVERYTHING:
            # It is a new log in the place of a lost one.
            return
        if found.loss:
            self._losses[key] = found
        else:
            self._losses.pop(key, None)

    def on_lost(self, key: Key) -> None:
        """A log is missing."""
        self._losses[key] = FoundLoss(ReplicaLoss.EVERYTHING)

    def on_not_opened(self, key: Key) -> None:
        """A log is there, but cannot be opened yet."""
        self._not_opened[key] = None

    def start(self, epoch: BrokerEpoch, submit: Submit, image: MetadataImage, done: Callback) -> None:
        """Report every log that an election may depend on; `done` is called when that is committed."""
        self._epoch, self._submit, self._image, self._done = epoch, submit, image, done
        for topic, state in image.partitions_of(self._me):
            counts = state.leader == NO_LEADER or self._me in (*state.complete, *state.last_known_elr)
            if counts and self._is_needed((topic.id, state.index), state):
                self._waiting[topic.id, state.index] = None
        self._send()

    def stop(self) -> None:
        self._submit = None
        if self._timer is not None:
            self._timer.cancel()

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def on_partition(self, topic_id: TopicId, state: PartitionState) -> None:
        """A partition with a replica here has changed: report, if it has no leader now."""
        key = (topic_id, state.index)
        if self._me in state.isr and self._losses.pop(key, None) is not None and key in self._logs:
            # It has everything again, or what it has is everything now.
            self._logs[key].log.accept_loss()
        if state.leader != NO_LEADER or self._submit is None:
            self._said.pop(key, None)
        elif self._is_needed(key, state) and self._is_news(key, state):
            self._waiting[key] = None
            self._soon(0)

    def _is_needed(self, key: Key, state: PartitionState) -> bool:
        """Whether there is something to say: the only replica that lost nothing leads in any case."""
        unsure = key in self._not_opened or state.report(self._me) is not None
        return (
            unsure or len(state.replicas) > 1 or self._report_of(key, state).loss is not ReplicaLoss.NOTHING
        )

    def _is_news(self, key: Key, state: PartitionState) -> bool:
        row, known = self._report_of(key, state), state.report(self._me)
        if self._said.get(key) == row:
            return False
        return (
            known is None
            or (known.broker_epoch, known.leader_epoch) != (self._epoch, row.leader_epoch)
            or (known.position, known.loss) != ((row.last_epoch, row.end), row.loss)
        )

    def _report_of(self, key: Key, state: PartitionState) -> PartitionReport:
        if key in self._not_opened:
            # In no leader epoch, so that it never counts as an answer: the replica is waited for, and
            # is not taken for one that has not restarted.
            return PartitionReport(*key, NO_LEADER_EPOCH, Offset(0), NO_LEADER_EPOCH, ReplicaLoss.NOTHING)
        found, replica = self._losses.get(key, LOST_NOTHING), self._logs.get(key)
        if replica is None:
            # Lost, or not created yet: then nothing was ever acknowledged from it.
            return PartitionReport(*key, NO_LEADER_EPOCH, Offset(0), state.leader_epoch, found.loss)
        log = replica.log
        if found.loss is ReplicaLoss.EVERYTHING and log.end > log.start:
            # A leader has begun to fill it again.
            found = FoundLoss(ReplicaLoss.TAIL)
        if (log.corruption or log.is_start_in_doubt) and found.loss < ReplicaLoss.RANGE:
            # A beginning that may be missing is a hole, too: how far the log goes does not make up for it.
            ends = (damage.end for damage in log.corruption)
            found = FoundLoss(ReplicaLoss.RANGE, max(ends, default=log.end))
        elif log.stopped is not None and not found.loss:
            found = FoundLoss(ReplicaLoss.DOUBTFUL)
        last_epoch = log.epochs.epoch_at(Offset(log.end - 1))
        return PartitionReport(*key, last_epoch, log.end, state.leader_epoch, *found)

    def _soon(self, pause_ms: int) -> None:
        if self._timer is None:
            deadline = Instant(self._runtime.clock.now() + pause_ms * MILLISECOND)
            self._timer = self._runtime.timers.at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        self._send()

    def _send(self) -> None:
        if self._submit is None or self._is_underway:
            return
        keys = list(self._waiting)[:REPORTS_PER_COMMAND]
        if not keys:
            self._settle()
            return
        rows = []
        for key in keys:
            del self._waiting[key]
            topic = self._image.topic_by_id(key[0])
            state = None if topic is None else topic.partition(key[1])
            if state is not None:
                rows.append(self._report_of(key, state))
                self._said[key] = rows[-1]
        self._is_underway = True
        self._submit(
            ReportReplicas(self._me, self._epoch, tuple(rows)), lambda reply: self._on_reply(keys, reply)
        )

    def _on_reply(self, keys: list[Key], reply: Reply) -> None:
        self._is_underway = False
        if not isinstance(reply, ApiError):
            self._send()
        elif reply.kind in REPLACED:
            # Another broker runs under this id, or none shall: the heartbeat finds that out as well.
            self._settle()
        else:
            for key in keys:
                self._said.pop(key, None)
                self._waiting[key] = None
            self._soon(RETRY_MS)

    def _settle(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()


class DivergenceReporter:
    """Has leaders deposed that lack committed records of this node's logs."""

    def __init__(self, me: NodeId, runtime: Runtime) -> None:
        self._me = me
        self._runtime = runtime
        self._image = EMPTY_IMAGE
        self._epoch = BrokerEpoch(-1)
        self._submit: Submit | None = None

    def start(self, epoch: BrokerEpoch, submit: Submit, image: MetadataImage) -> None:
        self._epoch, self._submit, self._image = epoch, submit, image

    def stop(self) -> None:
        self._submit = None

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def report(self, replica: Replica, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        """The leader of this epoch asked for a cut of committed records, which was refused."""
        topic, index = self._image.topic_by_id(replica.topic_id), replica.name.partition
        state = None if topic is None else topic.partition(index)
        if self._submit is None or state is None or state.leader_epoch != leader_epoch:
            return
        fields: dict[str, object] = {
            "partition": str(replica.name),
            "leader": state.leader,
            "leader_epoch": leader_epoch,
            "offset": offset,
            "high_watermark": replica.log.high_watermark,
        }

        def answered(reply: Reply) -> None:
            if not isinstance(reply, ApiError):
                events.warning("partition.leader_deposed", **fields)
            elif reply.kind is ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                # Once: this role has ended, and the next one begins with another leader epoch.
                events.error("partition.leader_not_deposed", reason=reply.detail, **fields)
            elif reply.kind is not ErrorKind.FENCED_LEADER_EPOCH and reply.kind not in REPLACED:
                deadline = Instant(self._runtime.clock.now() + DEPOSE_RETRY_MS * MILLISECOND)
                self._runtime.timers.at(deadline, lambda: self.report(replica, leader_epoch, offset))

        command = DeposeLeader(
            self._me,
            self._epoch,
            replica.topic_id,
            index,
            leader_epoch,
            offset,
            replica.log.high_watermark,
        )
        self._submit(command, answered)


def state_loss(name: str, end: Offset, state: PartitionState) -> None:
    """Log what is lost, by the leader that was elected although records are missing."""
    former = max((max(report.former_end, report.end) for report in state.reports), default=UNKNOWN_END)
    events.error(
        "partition.elected_with_loss",
        partition=name,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        end=end,
        lost=f"{end}..{former}" if former > end else "",
        reports=[f"{one.node_id}: {one.end} {one.loss.name.lower()}" for one in state.reports],
    )
