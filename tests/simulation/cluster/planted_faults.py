"""Clusters that are wrong in one way each, as a change of production code that somebody might make.

Each fault is planted by patching one method or function, or by another machine for the quorum,
and runs in the circumstances in which it does harm. `runs_max` is the bound: so many seeds, from 1
on, are enough for the checkers to notice. It is several times what is needed on average, since any
change of the code deals other cards.

    python -m tests.simulation.cluster.planted_faults      the runs that each fault needs now

"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import msgspec
import pytest

from penstock.broker.cluster import Controller
from penstock.broker.cluster.broker_lifecycle import BrokerHeartbeat
from penstock.broker.cluster.member import ClusterOptions as MemberOptions
from penstock.broker.cluster.quorum_admin import VoterChanges
from penstock.broker.coordinator import Coordinator
from penstock.broker.fetch import FetchService
from penstock.broker.lease import ENDED, FOREVER, BrokerLease
from penstock.broker.partitions import FollowerPartition, FsyncMode, LeaderPartition
from penstock.broker.partitions.leader_partition import Replica, SyncPolicy
from penstock.broker.partitions.replica_manager import ReplicaManager
from penstock.broker.partitions.segment_verifier import (
    OnVerified,
    SegmentVerifier,
    VerificationResult,
    VerifiedLog,
)
from penstock.broker.produce import ProduceService
from penstock.broker.replication import ReplicationOptions, ReplicationService, fetch_server
from penstock.core.groups import CommitOffsets, Heartbeat, classic_protocol
from penstock.core.groups.classic_group import ClassicGroup
from penstock.core.groups.outcome import GroupOutcome
from penstock.core.metadata import (
    NO_LEADER,
    AlterPartition,
    CreatedTopic,
    MetadataImage,
    Ok,
    decide_partitions,
    elections,
)
from penstock.core.metadata import Partition as PartitionState
from penstock.core.metadata.image import ReplicaReport
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    ErrorKind,
    Instant,
    NodeId,
    Offset,
    ProducerId,
    Timestamp,
)
from penstock.core.protocol.messages.fetch import FetchRequestPartition
from penstock.core.raft import Effect, Event, Index, PersistHardState, Raft
from penstock.core.raft.progress import ProgressTracker
from penstock.core.raft.raft import Leader
from penstock.core.records import BatchHeader, Record
from penstock.core.replica import ACCEPTED, IsrTracker, MayJoin, ProducerStateManager, ProposedIsrMember
from penstock.node import NodeOptions, NodeServices, NodeStorage
from penstock.runtime import Runtime
from penstock.server.kafka.backend import AdvertisedListener
from penstock.server.kafka.fetch_sessions import FetchSessionPartition
from penstock.sim.cluster import MakeProcess, SimulatedBroker, SimulatedClusterOptions, run_cluster
from penstock.sim.cluster.options import STATIC, node_options
from penstock.sim.faults import FaultKind, FaultPlan, FaultTarget
from penstock.sim.network import FAIR, NetworkFaults
from penstock.storage.disk import File
from penstock.storage.journal import JournaledLog
from penstock.storage.journal.journal import (
    CommitJournal,
    FrameBuilder,
    JournalNames,
    JournalPosition,
    LogJournal,
)
from penstock.storage.log import AppendedRange, PartitionLog, Verification, checkpoint, retention
from penstock.storage.log.compaction import OffsetMap
from penstock.storage.log.state import LogState
from tests.property.raft import planted
from tests.simulation.cluster import planted_access as access_faults
from tests.simulation.cluster import planted_consumer_groups as consumer_group_faults
from tests.simulation.cluster import planted_keys as key_faults
from tests.simulation.cluster import planted_queues as queue_faults
from tests.simulation.cluster import planted_recovery as recovery_faults
from tests.simulation.cluster import planted_transactions as transaction_faults

Patch = pytest.MonkeyPatch


def with_raft(raft_type: type[Raft]) -> MakeProcess:
    """Nodes whose quorum is kept by another machine."""

    class WrongBackstage(NodeServices):
        def _cluster_options(self) -> MemberOptions:
            return replace(super()._cluster_options(), raft_type=raft_type)

    class WrongProcess(SimulatedBroker):
        def _compose(
            self, storage: NodeStorage, options: NodeOptions, listeners: tuple[AdvertisedListener, ...]
        ) -> NodeServices:
            return WrongBackstage(self._runtime, storage, options, listeners)

    return WrongProcess


class CountsRemovedVoters(ProgressTracker):
    def agreed(self) -> Index:
        """Whoever gets the log counts, in the place of a voter."""
        matches = sorted((self.own_match(), *(peer.match for peer in self.others.values())), reverse=True)
        return Index(matches[self._state.configuration.majority - 1])


class LeaderOfEverybody(Leader):
    replication_type = CountsRemovedVoters


class RemovedVotersAreCounted(Raft):
    """A voter that was removed is a learner, and its copy is counted still."""

    leader_type = LeaderOfEverybody


class VotesAreNotOnDisk(Raft):
    """After a restart it knows its term, and not whom it has voted for."""

    def step(self, event: Event, now: Instant) -> list[Effect]:
        return [
            PersistHardState(effect.hard_state._replace(voted_for=None))
            if isinstance(effect, PersistHardState)
            else effect
            for effect in super().step(event, now)
        ]


def nothing(patch: Patch) -> None:
    """The fault is in how nodes are made."""


def follower_claims_what_it_has_not_synced(patch: Patch) -> None:
    patch.setattr(FollowerPartition, "synced", property(lambda self: self.log.end))


def leader_counts_what_it_has_not_synced(patch: Patch) -> None:
    append, reached = LeaderPartition.append, LeaderPartition._reached

    def append_and_count(self: LeaderPartition, *arguments: Any) -> AppendedRange:
        appended = append(self, *arguments)
        self._reached(self.log.end)
        return appended

    patch.setattr(LeaderPartition, "append", append_and_count)
    patch.setattr(LeaderPartition, "_reached", lambda self, _: reached(self, self.log.end))


def followers_cut_back_to_the_high_watermark(patch: Patch) -> None:
    """As Kafka did before KIP-101, and leaders ask for nothing else."""
    begin = FollowerPartition.__init__

    def begin_cut(self: FollowerPartition, *arguments: object) -> None:
        begin(self, *arguments)  # type: ignore[arg-type]
        if self.log.high_watermark < self.log.end:
            self.log.truncate_to(self.log.high_watermark)

    patch.setattr(FollowerPartition, "__init__", begin_cut)
    patch.setattr(fetch_server, "check_position", lambda *_: None)


def new_leader_tells_the_end_at_once(patch: Patch) -> None:
    patch.setattr(LeaderPartition, "is_established", True)


def shrink_counts_before_it_is_committed(patch: Patch) -> None:
    recount, propose = IsrTracker._recount, LeaderPartition.proposal

    def recount_proposed(self: IsrTracker) -> bool:
        if self._asked is None:
            return recount(self)
        self._counting = tuple(self._states_of(self._asked))
        return self._advance()

    def propose_and_advance(self: LeaderPartition, may_join: MayJoin) -> tuple[ProposedIsrMember, ...] | None:
        members = propose(self, may_join)
        self._advance(self.isr.high_watermark)
        return members

    patch.setattr(IsrTracker, "_recount", recount_proposed)
    patch.setattr(LeaderPartition, "proposal", propose_and_advance)


def a_leader_that_came_out_of_nowhere_gets_no_new_epoch(patch: Patch) -> None:
    with_epochs = elections.with_epochs

    def with_old_epoch(
        before: PartitionState, after: PartitionState, *, renew: bool = False
    ) -> PartitionState | None:
        changed = with_epochs(before, after, renew=renew)
        if changed is None or NO_LEADER not in (before.leader, after.leader):
            return changed
        return msgspec.structs.replace(changed, leader_epoch=before.leader_epoch)

    patch.setattr("penstock.core.metadata.decide_brokers.with_epochs", with_old_epoch)


def followers_join_the_isr_too_early(patch: Patch) -> None:
    """As soon as they fetch, whatever they lack; and what they lack comes in small pieces."""
    belongs, begin = IsrTracker._belongs, ReplicationService.__init__

    def belongs_if_it_fetches(
        self: IsrTracker, node: NodeId, log_end: Offset, now: Instant, may_join: MayJoin
    ) -> bool:
        follower = self.follower(node)
        if follower is None or node in self.assignment.isr:
            return belongs(self, node, log_end, now, may_join)
        return follower.broker_epoch >= 0 and not follower.refused

    def begin_with_small_answers(self: ReplicationService, *arguments: Any) -> None:
        begin(self, *arguments)
        self.fetch_server._response_builder._options = ReplicationOptions(partition_bytes_max=300)

    patch.setattr(IsrTracker, "_belongs", belongs_if_it_fetches)
    patch.setattr(ReplicationService, "__init__", begin_with_small_answers)


def high_watermark_moves_below_the_minimum(patch: Patch) -> None:
    patch.setattr(IsrTracker, "has_min_isr", True)


def followers_forget_producers(patch: Patch) -> None:
    append = FollowerPartition.append

    def append_only(self: FollowerPartition, batches: bytes, headers: Sequence[BatchHeader]) -> None:
        append(self, batches, [header._replace(producer_id=ProducerId(-1)) for header in headers])

    patch.setattr(FollowerPartition, "append", append_only)


def groups_answer_before_the_log_is_replicated(patch: Patch) -> None:
    def release_early(self: Coordinator[Any, Any, Any], _: Offset, replies: Sequence[Any]) -> None:
        self._release(replies)

    patch.setattr(Coordinator, "_release_when_committed", release_early)


def controller_answers_before_the_commit(patch: Patch) -> None:
    """To clients; brokers would notice at once."""
    release = Controller._release

    def release_early(self: Controller) -> None:
        release(self)
        for entry in [entry for entry in self._waiting if isinstance(entry.reply, CreatedTopic | Ok)]:
            self._waiting.remove(entry)
            entry.done(entry.reply, Offset(0))

    patch.setattr(Controller, "_release", release_early)


def anybody_may_be_elected(patch: Patch) -> None:
    elected = elections.elected

    def elect(
        partition: PartitionState, image: MetadataImage, minimum: int, *, unclean: bool, waited: bool = False
    ) -> PartitionState:
        return elected(partition, image, minimum, unclean=True, waited=waited)

    patch.setattr(elections, "elected", elect)


def consumers_read_to_the_log_end(patch: Patch) -> None:
    patch.setattr(
        LeaderPartition, "high_watermark", property(lambda self: self.log.end, lambda self, _: None)
    )


def old_generations_may_commit(patch: Patch) -> None:
    commit = import_module("penstock.core.groups.offsets")
    error_kind = commit._why_not_commit

    def hardly_ever(group: ClassicGroup | None, command: CommitOffsets) -> ErrorKind | None:
        kind: ErrorKind | None = error_kind(group, command)
        return None if kind in (ErrorKind.ILLEGAL_GENERATION, ErrorKind.UNKNOWN_MEMBER) else kind

    patch.setattr(commit, "_why_not_commit", hardly_ever)


def followers_never_cut_back(patch: Patch) -> None:
    patch.setattr(fetch_server, "check_position", lambda *_: None)


def fetch_sessions_keep_old_positions(patch: Patch) -> None:
    update = FetchSessionPartition.update

    def update_once(self: FetchSessionPartition, part: FetchRequestPartition) -> None:
        offset = getattr(self, "offset", part.fetch_offset)
        update(self, part)
        self.offset = offset

    patch.setattr(FetchSessionPartition, "update", update_once)


def acknowledgements_do_not_wait_for_the_disk(patch: Patch) -> None:
    def careless(options: SimulatedClusterOptions, number: int) -> NodeOptions:
        return replace(node_options(options, number), fsync=FsyncMode.NONE)

    patch.setattr("penstock.sim.cluster.world.node_options", careless)


def leaders_forget_what_producers_sent(patch: Patch) -> None:
    patch.setattr(ProducerStateManager, "check", lambda self, header: ACCEPTED)


def stale_partition_epochs_are_accepted(patch: Patch) -> None:
    problem = decide_partitions._problem_with_epochs

    def problem_but_not_that(partition: PartitionState, command: AlterPartition) -> ApiError | None:
        error = problem(partition, command)
        return None if error is not None and error.kind is ErrorKind.STALE_PARTITION_EPOCH else error

    patch.setattr(decide_partitions, "_problem_with_epochs", problem_but_not_that)


def isr_changes_keep_the_partition_epoch(patch: Patch) -> None:
    with_epochs = elections.with_epochs

    def with_old_epoch(
        before: PartitionState, after: PartitionState, *, renew: bool = False
    ) -> PartitionState | None:
        changed = with_epochs(before, after, renew=renew)
        if changed is None:
            return None
        return msgspec.structs.replace(changed, partition_epoch=before.partition_epoch)

    patch.setattr(decide_partitions, "with_epochs", with_old_epoch)


def proposals_of_unknown_fate_are_forgotten(patch: Patch) -> None:
    ended = IsrTracker.proposal_ended

    def ended_for_good(self: IsrTracker, *, accepted: bool | None) -> bool:
        if accepted is not None or self._asked is None:
            return ended(self, accepted=accepted)
        self._asked = None
        return self._recount()

    patch.setattr(IsrTracker, "proposal_ended", ended_for_good)


def followers_join_the_isr_at_the_high_watermark(patch: Patch) -> None:
    """Which may be behind, as long as the leader has not reached the start of its epoch."""
    belongs = IsrTracker._belongs

    def belongs_at_the_watermark(
        self: IsrTracker, node: NodeId, log_end: Offset, now: Instant, may_join: MayJoin
    ) -> bool:
        follower = self.follower(node)
        if follower is None or node in self.assignment.isr:
            return belongs(self, node, log_end, now, may_join)
        known = follower.broker_epoch >= 0 and not follower.refused
        return known and follower.synced >= self.high_watermark

    patch.setattr(IsrTracker, "_belongs", belongs_at_the_watermark)


def eligible_replicas_outlive_the_minimum(patch: Patch) -> None:
    with_isr = elections.with_isr

    def with_old_elr(partition: PartitionState, isr: tuple[NodeId, ...], minimum: int) -> PartitionState:
        after = with_isr(partition, isr, minimum)
        kept = tuple(node for node in partition.elr if node not in isr)
        return msgspec.structs.replace(after, elr=kept) if len(isr) >= minimum else after

    patch.setattr(elections, "with_isr", with_old_elr)
    patch.setattr(decide_partitions, "with_isr", with_old_elr)


def generations_are_not_checked_on_commit(patch: Patch) -> None:
    commit = import_module("penstock.core.groups.offsets")
    error_kind = commit._why_not_commit

    def whatever_the_generation(group: ClassicGroup | None, command: CommitOffsets) -> ErrorKind | None:
        kind: ErrorKind | None = error_kind(group, command)
        return None if kind is ErrorKind.ILLEGAL_GENERATION else kind

    patch.setattr(commit, "_why_not_commit", whatever_the_generation)


def group_sessions_never_end(patch: Patch) -> None:
    patch.setattr("penstock.core.groups.classic_protocol._end_sessions", lambda *_: None)


def brokers_answer_without_a_lease(patch: Patch) -> None:
    def take_it(self: BrokerHeartbeat) -> None:
        self.lease.until = FOREVER

    patch.setattr(BrokerHeartbeat, "voters_changed", take_it)


def the_lease_is_longer_than_the_session(patch: Patch) -> None:
    lease_ns = BrokerHeartbeat._lease_ns
    patch.setattr(BrokerHeartbeat, "_lease_ns", lambda self: 2 * lease_ns(self))


def leases_are_ended_by_a_timer(patch: Patch) -> None:
    """A process that stood still reads its sockets before any timer has fired."""
    begin = BrokerHeartbeat.__init__

    def begin_with_timer(self: BrokerHeartbeat, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self.lease = LeaseWithTimer(self._runtime)

    def granted(self: BrokerHeartbeat, sent: Instant) -> None:
        self.lease.until = Instant(sent + self._lease_ns())
        self._go_live()

    patch.setattr(BrokerHeartbeat, "__init__", begin_with_timer)
    patch.setattr(BrokerHeartbeat, "_granted", granted)


class LeaseWithTimer(BrokerLease):
    """Holds until its timer fires."""

    __slots__ = ("_held", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._held = ENDED

    @property
    def until(self) -> Instant:
        return ENDED if self._held == ENDED else Instant(FOREVER - 1)

    @until.setter
    def until(self, until: Instant) -> None:
        self._held = until
        if until not in (ENDED, FOREVER):
            self._runtime.timers.at(until, lambda: self._end(until))

    def _end(self, until: Instant) -> None:
        if self._held == until:
            self._held = ENDED


def _ignores_the_lease(patch: Patch, service: type[Any]) -> None:
    build = service.__init__

    def build_wrong(self: Any, *arguments: Any) -> None:
        build(self, *arguments)
        self._lease = BrokerLease(FOREVER)

    patch.setattr(service, "__init__", build_wrong)


def fetches_ignore_the_lease(patch: Patch) -> None:
    _ignores_the_lease(patch, FetchService)


def writes_to_the_leader_alone_ignore_the_lease(patch: Patch) -> None:
    _ignores_the_lease(patch, ProduceService)


def checkpoints_do_not_wait_for_the_log(patch: Patch) -> None:
    def start(self: checkpoint.BackgroundCheckpoint) -> None:
        for file in checkpoint.flush_index(self._state):
            self._state.durability.request_file(file, close=True)
        self._log_durable(None)

    patch.setattr(checkpoint.BackgroundCheckpoint, "start", start)


def recovery_ignores_the_journal(patch: Patch) -> None:
    def recover(self: LogJournal, position: JournalPosition, directory: str) -> JournaledLog:
        return self.journal.recover(self.key, JournalPosition(self.journal.journal_id, 1 << 60), directory)

    patch.setattr(LogJournal, "recover", recover)


def journal_frames_are_not_synced(patch: Patch) -> None:
    write = CommitJournal.write

    def write_only(self: CommitJournal, frame: FrameBuilder) -> tuple[File | JournalNames, ...]:
        write(self, frame)
        return ()

    patch.setattr(CommitJournal, "write", write_only)


def journal_files_are_freed_too_early(patch: Patch) -> None:
    """As soon as they are full, whoever needs them."""
    reclaim = CommitJournal._reclaim

    def reclaim_all(self: CommitJournal) -> None:
        for file in self._full:
            file.needed_by.clear()
        reclaim(self)

    patch.setattr(CommitJournal, "_reclaim", reclaim_all)


def checkpoints_cover_frames_that_come_later(patch: Patch) -> None:
    patch.setattr(
        LogJournal,
        "position",
        property(lambda self: JournalPosition(self.journal.journal_id, self.journal.sequence + 20)),
    )


def the_first_that_reports_is_elected(patch: Patch) -> None:
    patch.setattr(elections, "_is_whole", lambda *_, **__: True)


def the_shortest_log_is_elected(patch: Patch) -> None:
    longest = elections._longest

    def shortest(partition: PartitionState, image: MetadataImage) -> ReplicaReport | None:
        best = longest(partition, image)
        live = [report for report in partition.answers if image.may_lead(report.node_id)]
        return best and min(live, key=lambda report: report.position, default=best)

    patch.setattr(elections, "_longest", shortest)
    patch.setattr(elections, "_is_whole", lambda *_, **__: True)


def leases_never_end(patch: Patch) -> None:
    until = Instant(1 << 62)
    patch.setattr(BrokerLease, "until", property(lambda _: until, lambda *_: None))


def segments_are_never_verified(patch: Patch) -> None:
    def pretend(
        self: SegmentVerifier, owner: VerifiedLog, verification: Verification, done: OnVerified
    ) -> None:
        size = 1 << 62
        self._runtime.timers.soon(lambda: done(VerificationResult((), True, True, size, size)))

    patch.setattr(SegmentVerifier, "verify", pretend)
    patch.setattr(PartitionLog, "scrub", lambda *_, **__: iter(()))


def deletions_are_acknowledged_by_the_leader_alone(patch: Patch) -> None:
    patch.setattr(LeaderPartition, "when_deleted", lambda _self, _start, done, _timeout_ms: done(None))


def deletions_are_not_on_disk(patch: Patch) -> None:
    """The new start is in memory only, until the next checkpoint."""

    def move(state: LogState, start: Offset, _first_kept: object) -> None:
        state.start = start

    patch.setattr(retention, "_write_start", move)
    patch.setattr(retention, "_remove_files", lambda *_: [])


def deletions_take_whole_segments(patch: Patch) -> None:
    delete = retention.delete_records

    def delete_more(state: LogState, before: Offset) -> Offset:
        bases = [segment.base_offset for segment in state.segments]
        behind = [base for base in bases if before <= base <= state.high_watermark]
        return delete(state, min(behind, default=before))

    patch.setattr(retention, "delete_records", delete_more)


def retention_forgets_the_high_watermark(patch: Patch) -> None:
    count = retention._expired_count

    def count_all(state: LogState, now: Timestamp, at_once: int | None) -> int:
        before, state.high_watermark = state.high_watermark, state.end
        try:
            return count(state, now, at_once)
        finally:
            state.high_watermark = before

    patch.setattr(retention, "_expired_count", count_all)


def retention_takes_one_segment_too_many(patch: Patch) -> None:
    count = retention._expired_count

    def count_more(state: LogState, now: Timestamp, at_once: int | None) -> int:
        found = count(state, now, at_once)
        is_committed = found + 1 < len(state.segments) and (
            state.segments[found + 1].base_offset <= state.high_watermark
        )
        return found + bool(found and is_committed)

    patch.setattr(retention, "_expired_count", count_more)


def reassignments_do_not_wait_for_the_new_replicas(patch: Patch) -> None:
    arrived = elections.arrived

    def arrive_early(partition: PartitionState, image: MetadataImage, minimum: int) -> PartitionState:
        stays = [node for node in partition.isr if node in partition.target]
        if not partition.is_moving or not stays:
            return arrived(partition, image, minimum)
        return arrived(msgspec.structs.replace(partition, adding=()), image, minimum)

    patch.setattr(elections, "arrived", arrive_early)


def new_leaders_wait_for_the_last_one_only(patch: Patch) -> None:
    """Whoever led before that one, and has not heard of it either, is forgotten."""
    former_leaders = ReplicaManager._former_leaders

    def last_leader(
        self: ReplicaManager, replica: Replica, before: PartitionState, state: PartitionState
    ) -> Sequence[NodeId]:
        if before.leader_epoch != state.leader_epoch:
            replica.unaware.clear()
        return former_leaders(self, replica, before, state)

    patch.setattr(ReplicaManager, "_former_leaders", last_leader)


def voters_that_were_removed_stay(patch: Patch) -> None:
    patch.setattr(VoterChanges, "remove_voter", lambda _self, _member, told: told(None))


def compaction_drops_the_newest_value(patch: Patch) -> None:
    outdated = OffsetMap.is_outdated

    def is_outdated(self: OffsetMap, record: Record) -> bool:
        # Now and then the map is believed to know a later record.
        return outdated(self, record) or record.offset % 8 == 0

    patch.setattr(OffsetMap, "is_outdated", is_outdated)


def high_watermarks_go_back_when_syncs_begin(patch: Patch) -> None:
    configure = LeaderPartition.configure

    def configure_and_go_back(self: LeaderPartition, policy: SyncPolicy) -> None:
        configure(self, policy)
        if policy.before_acknowledging:
            self.high_watermark = self.isr.high_watermark = min(self.high_watermark, self.log.synced)

    patch.setattr(LeaderPartition, "configure", configure_and_go_back)


def static_members_are_known_by_their_instance_alone(patch: Patch) -> None:
    """Whoever comes with the instance id is taken for the member that has it now."""
    heartbeat = classic_protocol._heartbeat

    def heartbeat_of_holder(group: ClassicGroup, command: Heartbeat, outcome: GroupOutcome) -> None:
        holder = group.instances.get(command.instance_id or "", command.member_id)
        heartbeat(group, replace(command, member_id=holder), outcome)

    patch.setattr(classic_protocol, "_heartbeat", heartbeat_of_holder)


def options(
    kinds: tuple[FaultKind, ...],
    *,
    lasting_ms: int,
    sync_ms: int,
    aims: tuple[FaultTarget, ...] = (FaultTarget.LEADER,),
    weather: NetworkFaults = FAIR,
) -> SimulatedClusterOptions:
    """Busy clients, and faults that come as soon as the last one is over."""
    plan = FaultPlan(kinds, 100 * MILLISECOND, lasting_ms * MILLISECOND, weather, aims, patient=True)
    return SimulatedClusterOptions(
        pace_ms=25,
        consumers=2,
        faulty_ns=6 * SECOND,
        healing_ns=15 * SECOND,
        sync_max_ns=sync_ms * MILLISECOND,
        plan=plan,
    )


SLOW = NetworkFaults(delay_max_ns=100 * MILLISECOND)
ANY_OR_LEADER = (FaultTarget.ANYBODY, FaultTarget.LEADER)
ANY_OR_CONTROLLER = (FaultTarget.ANYBODY, FaultTarget.CONTROLLER)

# Slow disks, and the power goes everywhere: what was not synced is lost.
BLACKOUTS = replace(options((FaultKind.POWER_CUT_ALL,), lasting_ms=1_000, sync_ms=200), partitions=3)
# The same, and rounds have more to write than a frame takes.
BUSY_BLACKOUTS = replace(BLACKOUTS, pace_ms=8)
CONTROLLERS_FALL = options(
    (FaultKind.ISOLATE, FaultKind.POWER_CUT_ALL), lasting_ms=800, sync_ms=60, aims=ANY_OR_CONTROLLER
)
NEW_CONTROLLERS_ARE_CUT_OFF = FaultPlan(
    (FaultKind.ISOLATE,),
    30 * MILLISECOND,
    3_000 * MILLISECOND,
    NetworkFaults(delay_max_ns=60 * MILLISECOND),
    (FaultTarget.NEW_CONTROLLER,),
    strict=True,
)
# Controllers that have hardly been elected when they are cut off, and logs that are caught up in steps.
CONTROLLERS_COME_AND_GO = replace(
    options((FaultKind.ISOLATE,), lasting_ms=900, sync_ms=40, aims=(FaultTarget.CONTROLLER,)),
    plan=NEW_CONTROLLERS_ARE_CUT_OFF,
    faulty_ns=12 * SECOND,
    consumers=0,
    members=0,
    admins=2,
    raft_append_bytes=100,
)
# Nearly all the work is the quorum's: an entry is a message, and most terms end before all of them have it.
FIVE_CONTROLLERS_COME_AND_GO = replace(
    CONTROLLERS_COME_AND_GO,
    plan=replace(NEW_CONTROLLERS_ARE_CUT_OFF, network_faults=NetworkFaults(delay_max_ns=120 * MILLISECOND)),
    nodes=5,
    partitions=1,
    pace_ms=300,
    acknowledged_min=0,
    commits_min=0,
    faulty_ns=20 * SECOND,
    admins=4,
    raft_append_bytes=40,
)
# Followers leave the ISR and come back all the time, and controllers fall meanwhile.
ISR_COMES_AND_GOES = replace(
    options(
        (FaultKind.KILL, FaultKind.ONE_WAY_CUT),
        lasting_ms=5_000,
        sync_ms=40,
        aims=(FaultTarget.CONTROLLER, FaultTarget.ANYBODY),
        weather=NetworkFaults(delay_max_ns=80 * MILLISECOND),
    ),
    nodes=5,
    partitions=3,
    members=0,
    consumers=0,
    admins=0,
    faulty_ns=8 * SECOND,
    static={**STATIC, "replica.lag.time.max.ms": "60"},
)
# The same, and it is the leaders that fall.
# Controllers fall while they are asked, and those who asked do not.
CONTROLLERS_FALL_OFTEN = replace(
    ISR_COMES_AND_GOES,
    plan=options(
        (FaultKind.KILL, FaultKind.ONE_WAY_CUT),
        lasting_ms=600,
        sync_ms=40,
        aims=(FaultTarget.CONTROLLER, FaultTarget.ANYBODY),
        weather=NetworkFaults(delay_max_ns=80 * MILLISECOND),
    ).plan,
    faulty_ns=12 * SECOND,
)
ISR_AND_LEADERS_COME_AND_GO = replace(
    options(
        (FaultKind.KILL,),
        lasting_ms=600,
        sync_ms=40,
        weather=NetworkFaults(delay_max_ns=80 * MILLISECOND),
    ),
    partitions=3,
    members=0,
    consumers=0,
    admins=0,
    static={**STATIC, "replica.lag.time.max.ms": "60"},
)
LEADERS_FALL = options((FaultKind.KILL, FaultKind.ISOLATE), lasting_ms=800, sync_ms=20, aims=ANY_OR_LEADER)
# Long enough that others are elected while the leader and its clients know nothing of it.
LEADERS_ARE_CUT_OFF = replace(
    options((FaultKind.ISOLATE,), lasting_ms=4_500, sync_ms=10), faulty_ns=8 * SECOND
)
# The same, and processes that stand still: no answer may be older than what others were told.
LEADERS_STAND_STILL = replace(
    options((FaultKind.PAUSE, FaultKind.ISOLATE), lasting_ms=4_500, sync_ms=10, aims=ANY_OR_LEADER),
    faulty_ns=12 * SECOND,
)
# Leaders fall with records that only some of the others have.
STRANDED_LEADERS = replace(
    options((FaultKind.STRANDED_LEADER, FaultKind.KILL), lasting_ms=600, sync_ms=10, weather=SLOW),
    partitions=3,
    members=0,
    admins=0,
)
# Followers are always behind, and leaders die before they have caught up.
LONG_TAILS = replace(
    options((FaultKind.KILL, FaultKind.ISOLATE), lasting_ms=400, sync_ms=2, weather=SLOW),
    consumers=3,
    partitions=3,
    members=0,
    admins=0,
)
MANY_MEMBERS = replace(
    options((FaultKind.KILL,), lasting_ms=300, sync_ms=2, weather=SLOW),
    members=5,
    consumers=0,
    admins=0,
    idempotent_producers=1,
)
MANY_NAPS = replace(MANY_MEMBERS, plan=FaultPlan((), SECOND, SECOND, FAIR))
# One node loses what it had synced, and all of them restart.
DAMAGED_TAILS = replace(
    options((FaultKind.DAMAGED_TAIL, FaultKind.KILL_ALL), lasting_ms=800, sync_ms=10), consumers=1
)
# A node that comes back without files, whole partitions included.
LOST_LOGS = replace(
    options(
        (FaultKind.MISSING_DIRECTORY, FaultKind.MISSING_FILE, FaultKind.KILL_ALL), lasting_ms=800, sync_ms=10
    ),
    consumers=1,
    members=0,
)
# Voters lose entries, votes and snapshots, and others are down meanwhile.
VOTERS_IN_DOUBT = replace(
    options(
        (FaultKind.DAMAGED_QUORUM, FaultKind.KILL),
        lasting_ms=1_500,
        sync_ms=20,
        aims=(FaultTarget.ANYBODY,),
    ),
    partitions=1,
    consumers=0,
    members=0,
    admins=2,
)
ROTTEN_LOGS = replace(
    options((FaultKind.ROT, FaultKind.KILL), lasting_ms=800, sync_ms=10), consumers=2, members=0
)
SLOW_LEADERS = replace(
    options((FaultKind.SLOW_DISK, FaultKind.POWER_CUT_ALL), lasting_ms=300, sync_ms=30),
    partitions=3,
    pace_ms=15,
)
FIVE_NODES = replace(
    options(
        (FaultKind.ISOLATE, FaultKind.KILL, FaultKind.POWER_CUT),
        lasting_ms=2_500,
        sync_ms=10,
        aims=ANY_OR_LEADER,
    ),
    nodes=5,
)
COMING_BACK_LATE = replace(
    options(
        (FaultKind.ISOLATE, FaultKind.POWER_CUT_ALL),
        lasting_ms=2_500,
        sync_ms=10,
        aims=(FaultTarget.ANYBODY,),
    ),
    faulty_ns=8 * SECOND,
    partitions=1,
    # With three, whoever makes the quorum whole is in sync, too.
    nodes=5,
    # Who is cut off is soon out of sync.
    static={**STATIC, "replica.lag.time.max.ms": "300"},
)
# One node that falls again and again.
ALONE = replace(
    options(
        (FaultKind.POWER_CUT, FaultKind.POWER_CUT_IN_WRITE, FaultKind.KILL, FaultKind.FAILED_SYNC),
        lasting_ms=60,
        sync_ms=10,
    ),
    nodes=1,
)
# Voters come and go, and so do controllers.
VOTER_CHANGES = replace(
    CONTROLLERS_COME_AND_GO, nodes=4, voter_admins=1, admins=1, idempotent_producers=1, pace_ms=15
)
# Logs are compacted, and leaders fall whose followers are behind.
COMPACTED = replace(
    LONG_TAILS, compacted=True, pace_ms=10, static={**STATIC, "log.cleaner.backoff.ms": "100"}
)
# Nodes do not sync by themselves; the topic asks for it, and changes its mind.
FSYNC_CHANGES = replace(LEADERS_FALL, fsync=FsyncMode.NONE, pace_ms=15)
# Partitions move, and leaders fall.
REASSIGNMENTS = replace(LEADERS_FALL, nodes=4, movers=1, pace_ms=15)
# Leaders are taken out one after the other, and are cut off meanwhile: clients may still reach them.
LEADERS_ROTATE = SimulatedClusterOptions(
    nodes=5,
    rotators=2,
    pace_ms=20,
    idempotent_producers=3,
    consumers=5,
    members=0,
    admins=0,
    faulty_ns=10 * SECOND,
    healing_ns=15 * SECOND,
    sync_max_ns=10 * MILLISECOND,
    plan=FaultPlan((FaultKind.ISOLATE,), 2 * SECOND, 4 * SECOND, FAIR, (FaultTarget.LEADER,)),
)
# Records are deleted from the front, and leaders fall.
DELETIONS = replace(LEADERS_FALL, deleters=1, pace_ms=15)
# Logs are kept short, and followers are behind.
RETENTION = replace(LONG_TAILS, retention_bytes=3_000, pace_ms=10)
CATCHING_UP = replace(
    options(
        (FaultKind.POWER_CUT, FaultKind.KILL),
        lasting_ms=500,
        sync_ms=5,
        aims=ANY_OR_LEADER,
        weather=NetworkFaults(delay_max_ns=40 * MILLISECOND),
    ),
    pace_ms=10,
    partitions=3,
)


# Members of the new protocol come and go, and coordinators fall.
CONSUMER_GROUP = replace(
    options((FaultKind.KILL, FaultKind.ISOLATE), lasting_ms=400, sync_ms=5),
    consumer_members=5,
    partitions=3,
    pace_ms=60,
    idempotent_producers=1,
    consumers=0,
    members=0,
    admins=0,
    acknowledged_min=20,
    faulty_ns=5 * SECOND,
)
# The same, and nodes stay: heartbeats are rarely lost.
CALM_CONSUMER_GROUP = replace(CONSUMER_GROUP, plan=FaultPlan((), SECOND, SECOND, FAIR))
# Nodes fall while transactions begin and end.
TRANSACTIONS = replace(
    options((FaultKind.KILL, FaultKind.ISOLATE), lasting_ms=500, sync_ms=10, aims=ANY_OR_LEADER),
    transactional_producers=3,
    idempotent_producers=1,
    consumers=0,
    members=0,
    admins=0,
    acknowledged_min=20,
    faulty_ns=3 * SECOND,
    pace_ms=15,
)
# Coordinators and leaders fall with what only some of the others have.
STRANDED_TRANSACTIONS = replace(TRANSACTIONS, plan=STRANDED_LEADERS.plan, partitions=1)
# Leaders fall, and lose segments that they were writing.
DAMAGED_TRANSACTIONS = replace(
    TRANSACTIONS,
    plan=FaultPlan(
        (FaultKind.MISSING_FILE, FaultKind.DAMAGED_TAIL),
        100 * MILLISECOND,
        500 * MILLISECOND,
        FAIR,
        (FaultTarget.LEADER,),
        patient=True,
    ),
    partitions=3,
    transactional_producers=6,
    faulty_ns=6 * SECOND,
)
# The same, but some nodes have what others do not.
HALF_STRANDED_TRANSACTIONS = replace(
    TRANSACTIONS,
    plan=FaultPlan(
        (FaultKind.STRANDED_LEADER,),
        100 * MILLISECOND,
        600 * MILLISECOND,
        FAIR,
        (FaultTarget.LEADER,),
        patient=True,
        stranded_with=1,
    ),
    partitions=3,
    transactional_producers=6,
    faulty_ns=6 * SECOND,
)
# Consume, transform, produce.
TRANSFORMERS = replace(TRANSACTIONS, transactional_producers=0, transformers=3, partitions=1)
# Tasks write, drivers commit what they wrote together, and both die; coordinators fall now and then.
BATCHES = replace(
    TRANSACTIONS,
    plan=FaultPlan(
        (FaultKind.KILL, FaultKind.ISOLATE),
        400 * MILLISECOND,
        300 * MILLISECOND,
        FAIR,
        ANY_OR_LEADER,
        patient=True,
    ),
    transactional_producers=0,
    sinks=2,
    pace_ms=10,
)
# The same, and consumers read from followers.
RACKS = replace(BATCHES, rack_consumers=2)
# Coordinators and leaders of queues fall, and come back soon: leases last for longer.
QUEUES = replace(
    options((FaultKind.KILL, FaultKind.ISOLATE), lasting_ms=400, sync_ms=5, aims=ANY_OR_LEADER),
    queue_consumers=2,
    queue_transactors=2,
    transactional_producers=1,
    partitions=1,
    idempotent_producers=1,
    consumers=0,
    members=0,
    admins=0,
    acknowledged_min=20,
    transactions_min=1,
    pace_ms=20,
    healing_ns=60 * SECOND,
)
# More of what is acknowledged in transactions.
QUEUE_TRANSACTIONS = replace(QUEUES, queue_consumers=1, queue_transactors=4)
STRANDED_QUEUES = replace(QUEUES, plan=STRANDED_LEADERS.plan)
# Members of a share group come and go.
SHARED_QUEUES = replace(
    QUEUES, queue_consumers=1, queue_transactors=0, transactional_producers=0, share_consumers=5
)
PAUSED_QUEUES = replace(SHARED_QUEUES, queue_consumers=2, share_consumers=1, queue_pausers=2)
# Many dead letters, and somebody who has them moved all the time.
REDRIVEN_QUEUES = replace(
    QUEUES,
    queue_consumers=4,
    queue_transactors=0,
    transactional_producers=0,
    queue_redrivers=4,
    pace_ms=10,
    faulty_ns=6 * SECOND,
)

# Users whose rights, passwords and API keys change while nodes fall and are cut off.
ACCESS = replace(
    options((FaultKind.KILL, FaultKind.ISOLATE), lasting_ms=400, sync_ms=5, aims=ANY_OR_LEADER),
    access_users=3,
    partitions=1,
    idempotent_producers=1,
    consumers=0,
    members=0,
    admins=0,
    acknowledged_min=20,
    pace_ms=20,
    healing_ns=60 * SECOND,
)
# Nodes that fall while master keys change, and start with those that they say they need.
ENCRYPTED = replace(
    options((FaultKind.KILL, FaultKind.POWER_CUT, FaultKind.POWER_CUT_ALL), lasting_ms=300, sync_ms=10),
    encrypted=True,
    partitions=2,
    acknowledged_min=20,
    pace_ms=30,
    healing_ns=60 * SECOND,
)
# As `ACCESS`, and leaders stand still for so long that others take their place. Only users find that out.
ACCESS_AT_FENCED_LEADERS = replace(
    ACCESS,
    plan=LEADERS_STAND_STILL.plan,
    faulty_ns=12 * SECOND,
    fresh=False,
)


@dataclass(frozen=True)
class PlantedFault:
    """What is planted, in which circumstances, and within how many seeds it is found."""

    plant: Callable[[Patch], None]
    circumstances: SimulatedClusterOptions
    runs_max: int
    # A seed that found it last: tried first, so that the tests are quick as long as it still does.
    hint: int = 1
    make: MakeProcess = SimulatedBroker
    name: str = ""

    @property
    def is_soon_found(self) -> bool:
        """Whether a few runs are enough as a rule; for the others there is `make simfaults`."""
        return self.runs_max <= 10 or self.hint == 1

    def __str__(self) -> str:
        return (self.name or self.plant.__name__).replace("_", " ")


QUEUE_FAULTS = [
    PlantedFault(queue_faults.leases_are_delivered_before_they_are_replicated, STRANDED_QUEUES, 50),
    PlantedFault(queue_faults.new_coordinators_forget_leases, QUEUES, 50),
    PlantedFault(queue_faults.new_coordinators_take_leases_for_nearly_over, QUEUES, 50),
    PlantedFault(queue_faults.receipts_are_not_compared, QUEUES, 50),
    PlantedFault(queue_faults.rewrites_forget_attempts, QUEUES, 50),
    PlantedFault(queue_faults.rewrites_forget_what_is_leased, QUEUES, 50),
    PlantedFault(queue_faults.aborted_transactions_finish_records, QUEUE_TRANSACTIONS, 50, hint=3),
    PlantedFault(queue_faults.moves_do_not_wait_for_their_transaction, QUEUES, 50, hint=18),
    PlantedFault(queue_faults.new_coordinators_forget_delays, QUEUES, 50, hint=1),
    PlantedFault(queue_faults.delivery_times_are_ignored, QUEUES, 50, hint=2),
    PlantedFault(queue_faults.records_of_a_key_do_not_wait_for_each_other, QUEUES, 50),
    PlantedFault(queue_faults.a_delayed_record_lets_its_key_pass, QUEUES, 50, hint=2),
    PlantedFault(queue_faults.offers_go_beyond_the_last_stable_offset, QUEUES, 50),
    PlantedFault(queue_faults.renewals_are_forgotten, QUEUES, 50, hint=2),
    PlantedFault(queue_faults.releases_end_whatever_their_consumer_has, SHARED_QUEUES, 100, hint=53),
    PlantedFault(queue_faults.sessions_end_what_their_member_got_in_others, SHARED_QUEUES, 50, hint=8),
    PlantedFault(queue_faults.new_coordinators_forget_pauses, PAUSED_QUEUES, 50, hint=7),
    PlantedFault(queue_faults.new_leaders_resume_queues, PAUSED_QUEUES, 50, hint=4),
    PlantedFault(queue_faults.redrives_finish_dead_letters_at_once, REDRIVEN_QUEUES, 200, hint=116),
    PlantedFault(queue_faults.redrives_do_not_wait_for_the_queue, REDRIVEN_QUEUES, 50),
    PlantedFault(queue_faults.times_to_live_are_ignored, QUEUES, 50),
    PlantedFault(queue_faults.records_are_delivered_once_too_often, QUEUES, 50),
]
# What comes after a loss: elections by report, voters in doubt, verification and repair.
RECOVERY_FAULTS = [
    PlantedFault(
        nothing, VOTERS_IN_DOUBT, 10, make=with_raft(planted.IsNeverInDoubt), name="a voter is never in doubt"
    ),
    PlantedFault(
        nothing,
        VOTERS_IN_DOUBT,
        50,
        hint=11,
        make=with_raft(planted.VotesAgainWithoutItsHardState),
        name="a lost hard state counts as a blank one",
    ),
    PlantedFault(
        nothing,
        VOTERS_IN_DOUBT,
        10,
        make=with_raft(recovery_faults.EndsItsDoubtAtOnce),
        name="a doubt ends before the log is caught up",
    ),
    PlantedFault(recovery_faults.doubts_are_not_stored, VOTERS_IN_DOUBT, 10),
    PlantedFault(recovery_faults.damaged_entries_are_skipped, VOTERS_IN_DOUBT, 10),
    PlantedFault(recovery_faults.empty_logs_count_as_complete, LOST_LOGS, 20, hint=3),
    PlantedFault(recovery_faults.nobody_waits_for_replicas_that_may_be_whole, LOST_LOGS, 20, hint=3),
    PlantedFault(recovery_faults.segments_are_sent_unverified, ROTTEN_LOGS, 20, hint=3),
    PlantedFault(recovery_faults.damaged_replicas_do_not_resign, ROTTEN_LOGS, 44, hint=2),
    PlantedFault(recovery_faults.damaged_replicas_follow_on_without_a_refill, ROTTEN_LOGS, 20),
    PlantedFault(recovery_faults.a_refill_leaves_out_what_was_damaged, ROTTEN_LOGS, 10),
    PlantedFault(recovery_faults.a_refill_takes_whatever_comes, ROTTEN_LOGS, 20),
]

FAULTS = [
    *RECOVERY_FAULTS,
    PlantedFault(
        nothing,
        CONTROLLERS_FALL,
        5,
        make=with_raft(VotesAreNotOnDisk),
        name="a vote is not on disk",
    ),
    PlantedFault(
        nothing,
        BLACKOUTS,
        10,
        make=with_raft(planted.AnswersBeforeTheSync),
        name="a controller claims entries that it has not synced",
    ),
    PlantedFault(controller_answers_before_the_commit, CONTROLLERS_FALL, 5),
    PlantedFault(follower_claims_what_it_has_not_synced, BLACKOUTS, 15),
    PlantedFault(leader_counts_what_it_has_not_synced, SLOW_LEADERS, 40),
    PlantedFault(followers_cut_back_to_the_high_watermark, LEADERS_FALL, 10),
    PlantedFault(followers_never_cut_back, LONG_TAILS, 10, hint=4),
    PlantedFault(new_leader_tells_the_end_at_once, LONG_TAILS, 10, hint=4),
    PlantedFault(shrink_counts_before_it_is_committed, LEADERS_ARE_CUT_OFF, 30),
    PlantedFault(a_leader_that_came_out_of_nowhere_gets_no_new_epoch, BLACKOUTS, 10),
    PlantedFault(followers_join_the_isr_too_early, CATCHING_UP, 50),
    PlantedFault(high_watermark_moves_below_the_minimum, FIVE_NODES, 25, hint=3),
    PlantedFault(anybody_may_be_elected, COMING_BACK_LATE, 60, hint=8),
    PlantedFault(followers_forget_producers, LONG_TAILS, 10, hint=3),
    PlantedFault(consumers_read_to_the_log_end, LEADERS_FALL, 15),
    PlantedFault(groups_answer_before_the_log_is_replicated, MANY_MEMBERS, 20, hint=1),
    PlantedFault(old_generations_may_commit, MANY_NAPS, 20),
    PlantedFault(fetch_sessions_keep_old_positions, LEADERS_FALL, 10),
    PlantedFault(brokers_answer_without_a_lease, LEADERS_STAND_STILL, 10),
    PlantedFault(the_lease_is_longer_than_the_session, LEADERS_STAND_STILL, 10),
    PlantedFault(leases_are_ended_by_a_timer, LEADERS_STAND_STILL, 92, hint=1),
    PlantedFault(fetches_ignore_the_lease, LEADERS_STAND_STILL, 20),
    PlantedFault(writes_to_the_leader_alone_ignore_the_lease, LEADERS_STAND_STILL, 40, hint=5),
    PlantedFault(acknowledgements_do_not_wait_for_the_disk, ALONE, 10),
    PlantedFault(leaders_forget_what_producers_sent, ALONE, 10),
    PlantedFault(consumers_read_to_the_log_end, ALONE, 10, name="consumers read what is not on disk"),
    PlantedFault(
        nothing,
        FIVE_CONTROLLERS_COME_AND_GO,
        30,
        hint=26,
        make=with_raft(planted.CommitsEarlierTermsByCounting),
        name="entries of old terms are committed by counting",
    ),
    PlantedFault(stale_partition_epochs_are_accepted, ISR_COMES_AND_GOES, 20, hint=4),
    PlantedFault(isr_changes_keep_the_partition_epoch, ISR_COMES_AND_GOES, 10),
    PlantedFault(proposals_of_unknown_fate_are_forgotten, CONTROLLERS_FALL_OFTEN, 60, hint=3),
    PlantedFault(followers_join_the_isr_at_the_high_watermark, ISR_AND_LEADERS_COME_AND_GO, 100, hint=1),
    PlantedFault(eligible_replicas_outlive_the_minimum, ISR_COMES_AND_GOES, 20, hint=2),
    PlantedFault(generations_are_not_checked_on_commit, MANY_NAPS, 30),
    PlantedFault(group_sessions_never_end, MANY_NAPS, 20),
    PlantedFault(checkpoints_do_not_wait_for_the_log, BLACKOUTS, 10),
    PlantedFault(recovery_ignores_the_journal, BLACKOUTS, 10),
    PlantedFault(journal_frames_are_not_synced, BLACKOUTS, 10),
    PlantedFault(journal_files_are_freed_too_early, BLACKOUTS, 30),
    PlantedFault(checkpoints_cover_frames_that_come_later, BLACKOUTS, 20),
    PlantedFault(recovery_faults.appends_that_do_not_fit_count_as_durable, BUSY_BLACKOUTS, 10, hint=3),
    PlantedFault(the_first_that_reports_is_elected, DAMAGED_TAILS, 30, hint=9),
    PlantedFault(the_shortest_log_is_elected, DAMAGED_TAILS, 20, hint=9),
    PlantedFault(leases_never_end, LEADERS_ARE_CUT_OFF, 20),
    PlantedFault(recovery_faults.followers_take_the_end_for_the_high_watermark, LONG_TAILS, 20, hint=4),
    PlantedFault(recovery_faults.one_of_the_isr_is_enough, LONG_TAILS, 5),
    PlantedFault(recovery_faults.new_leaders_call_everything_committed, STRANDED_LEADERS, 20, hint=12),
    PlantedFault(recovery_faults.coordinators_serve_before_they_have_loaded, MANY_MEMBERS, 5),
    PlantedFault(recovery_faults.generations_begin_anew, MANY_MEMBERS, 5),
    PlantedFault(recovery_faults.groups_keep_their_facts_in_memory, MANY_MEMBERS, 5),
    PlantedFault(segments_are_never_verified, ROTTEN_LOGS, 20, hint=3),
    PlantedFault(deletions_are_acknowledged_by_the_leader_alone, DELETIONS, 5),
    PlantedFault(deletions_are_not_on_disk, DELETIONS, 10),
    PlantedFault(deletions_take_whole_segments, DELETIONS, 10),
    PlantedFault(reassignments_do_not_wait_for_the_new_replicas, REASSIGNMENTS, 5),
    PlantedFault(new_leaders_wait_for_the_last_one_only, LEADERS_ROTATE, 40, hint=15),
    PlantedFault(
        nothing,
        VOTER_CHANGES,
        80,
        hint=9,
        make=with_raft(RemovedVotersAreCounted),
        name="removed voters are counted",
    ),
    PlantedFault(voters_that_were_removed_stay, VOTER_CHANGES, 5),
    PlantedFault(compaction_drops_the_newest_value, COMPACTED, 5),
    PlantedFault(high_watermarks_go_back_when_syncs_begin, FSYNC_CHANGES, 40, hint=6),
    PlantedFault(static_members_are_known_by_their_instance_alone, MANY_NAPS, 10),
    PlantedFault(retention_forgets_the_high_watermark, RETENTION, 36, hint=12),
    PlantedFault(retention_takes_one_segment_too_many, RETENTION, 10),
    PlantedFault(transaction_faults.ends_of_old_epochs_are_obeyed, TRANSACTIONS, 10),
    PlantedFault(transaction_faults.batches_are_not_verified, TRANSACTIONS, 10),
    PlantedFault(transaction_faults.the_last_stable_offset_is_the_high_watermark, TRANSACTIONS, 10),
    PlantedFault(transaction_faults.followers_forget_aborted_transactions, TRANSACTIONS, 10),
    PlantedFault(transaction_faults.recovery_forgets_aborted_transactions, TRANSACTIONS, 10),
    PlantedFault(transaction_faults.timeouts_keep_the_epoch, TRANSACTIONS, 20),
    PlantedFault(transaction_faults.new_coordinators_forget_what_is_prepared, TRANSACTIONS, 20),
    PlantedFault(transaction_faults.markers_go_to_the_first_partition_only, TRANSACTIONS, 10),
    PlantedFault(transaction_faults.markers_are_not_sent_again, TRANSACTIONS, 50),
    PlantedFault(transaction_faults.transactions_of_a_producer_share_an_epoch, TRANSACTIONS, 20),
    PlantedFault(transaction_faults.new_incarnations_keep_the_epoch, TRANSACTIONS, 20),
    PlantedFault(
        transaction_faults.coordinators_answer_before_their_log_is_replicated, STRANDED_TRANSACTIONS, 20
    ),
    PlantedFault(
        transaction_faults.markers_are_sent_before_the_outcome_is_replicated,
        HALF_STRANDED_TRANSACTIONS,
        50,
        hint=21,
    ),
    PlantedFault(recovery_faults.a_refill_leaves_the_producers_as_they_are, DAMAGED_TRANSACTIONS, 20, hint=4),
    PlantedFault(transaction_faults.offsets_of_aborted_transactions_are_applied, TRANSFORMERS, 10),
    PlantedFault(transaction_faults.offsets_of_open_transactions_are_not_waited_for, TRANSFORMERS, 20),
    PlantedFault(transaction_faults.followers_ignore_the_isolation_level, RACKS, 10),
    PlantedFault(transaction_faults.new_coordinators_forget_batches, BATCHES, 50, hint=4),
    PlantedFault(transaction_faults.a_batch_leaves_out_its_last_transaction, BATCHES, 10),
    PlantedFault(transaction_faults.a_batch_commits_whatever_its_tasks_have_open, BATCHES, 50),
    PlantedFault(transaction_faults.a_batch_that_is_refused_counts_as_committed, BATCHES, 50),
    PlantedFault(transaction_faults.a_batch_leaves_its_producers_their_epoch, BATCHES, 50),
    PlantedFault(
        consumer_group_faults.partitions_are_given_before_they_are_given_up, CALM_CONSUMER_GROUP, 10
    ),
    PlantedFault(consumer_group_faults.revocations_are_not_waited_for, CALM_CONSUMER_GROUP, 10),
    PlantedFault(consumer_group_faults.member_epochs_are_not_checked_on_commit, CALM_CONSUMER_GROUP, 10),
    PlantedFault(consumer_group_faults.revocations_keep_the_member_epoch, CALM_CONSUMER_GROUP, 50),
    PlantedFault(consumer_group_faults.sessions_never_end, CALM_CONSUMER_GROUP, 10),
    PlantedFault(consumer_group_faults.group_epochs_are_not_stored, CONSUMER_GROUP, 20),
    PlantedFault(consumer_group_faults.current_assignments_are_not_stored, CONSUMER_GROUP, 40, hint=6),
    PlantedFault(consumer_group_faults.heartbeats_of_old_epochs_are_accepted, CALM_CONSUMER_GROUP, 20),
    PlantedFault(consumer_group_faults.static_members_replace_each_other, CALM_CONSUMER_GROUP, 20),
    PlantedFault(access_faults.decisions_outlive_revocations, ACCESS, 5),
    PlantedFault(access_faults.denials_of_prefixes_are_ignored, ACCESS, 5),
    PlantedFault(access_faults.passwords_are_acknowledged_before_they_are_durable, ACCESS, 5),
    PlantedFault(access_faults.logins_are_checked_by_the_first_password, ACCESS, 5),
    PlantedFault(access_faults.fetches_that_wait_are_not_judged_again, ACCESS, 10),
    PlantedFault(access_faults.logins_outlive_their_api_keys, ACCESS, 10),
    PlantedFault(
        brokers_answer_without_a_lease,
        ACCESS_AT_FENCED_LEADERS,
        100,
        hint=51,
        name="fenced brokers answer by rights that were taken back",
    ),
    PlantedFault(key_faults.old_keys_are_not_needed_when_some_logs_are_done, ENCRYPTED, 5),
    PlantedFault(key_faults.key_tables_count_before_their_names_are_durable, ENCRYPTED, 5),
    PlantedFault(
        key_faults.nodes_that_have_just_started_say_that_they_need_no_old_key, ENCRYPTED, 40, hint=6
    ),
    *QUEUE_FAULTS,
]


def runs_needed(fault: PlantedFault, seeds: Iterable[int]) -> tuple[int, str] | None:
    """How many of the seeds it takes until the fault is noticed, and what is noticed."""
    for number, seed in enumerate(seeds, 1):
        verdict = run_cluster(seed, fault.circumstances, fault.make)
        if not verdict.passed:
            # What was planted has to fit the code that it is planted into.
            misfits = [one for one in verdict.anomalies if "TypeError" in one or "AttributeError" in one]
            assert not misfits, f"{fault}: {misfits[0]}"
            return number, verdict.anomalies[0]
    return None


def print_table(words: Sequence[str]) -> bool:
    """Every fault, or those with one of the words in their names: seeds from 1 on; whether all were found."""
    is_complete = True
    for fault in FAULTS:
        if words and not any(word in str(fault) for word in words):
            continue
        with pytest.MonkeyPatch.context() as patch:
            fault.plant(patch)
            found = runs_needed(fault, range(1, fault.runs_max + 1))
        is_complete = is_complete and found is not None
        runs, anomaly = found or (None, "not found")
        sys.stdout.write(f"{fault!s:60} {runs or '-':>4} of {fault.runs_max:<4} {anomaly[:90]}\n")
        sys.stdout.flush()
    return is_complete


if __name__ == "__main__":
    sys.exit(0 if print_table(sys.argv[1:]) else 1)
