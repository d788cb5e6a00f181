"""Clusters that are wrong in one way each, as a change of production code that somebody might make.

Each fault is planted by patching one method or function. `runs_max` is the promise: so many
seeds, from 1 on, are enough for the checkers to notice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import msgspec
import pytest

from penstock.app import Backstage, NodeOptions, NodeStorage
from penstock.core.groups import CommitOffsets
from penstock.core.groups.classic import ClassicGroup
from penstock.core.metadata import NO_LEADER, CreatedTopic, Done, MetadataImage
from penstock.core.metadata import Partition as PartitionState
from penstock.core.metadata.decisions import leadership
from penstock.core.model import MILLISECOND, Instant, NodeId, Offset, ProducerId, Why
from penstock.core.raft import Raft
from penstock.core.records import BatchHeader
from penstock.core.replica import InSync, ProposedMember
from penstock.runtime import Runtime
from penstock.services.cluster import Controller
from penstock.services.cluster.options import ClusterOptions as MemberOptions
from penstock.services.groups import CoordinatorHost
from penstock.services.partitions import Followed, Partition
from penstock.services.replication import serving
from penstock.simulation.cluster import MakeBackstage
from penstock.simulation.cluster.node import production
from penstock.simulation.faults import FaultPlan
from penstock.storage.log import Appended

Patch = pytest.MonkeyPatch

SLOW_SYNC_NS = 60 * MILLISECOND


def with_raft(raft_type: type[Raft]) -> MakeBackstage:
    """Nodes whose quorum is kept by another machine."""

    class WrongBackstage(Backstage):
        def _cluster_options(self) -> MemberOptions:
            return replace(super()._cluster_options(), raft_type=raft_type)

    def make(runtime: Runtime, storage: NodeStorage, options: NodeOptions) -> Backstage:
        return WrongBackstage(runtime, storage, options, ())

    return make


def nothing(patch: Patch) -> None:
    """The fault is in how nodes are made."""


def follower_claims_what_it_has_not_synced(patch: Patch) -> None:
    patch.setattr(Followed, "synced", property(lambda self: self.log.end))


def leader_counts_what_it_has_not_synced(patch: Patch) -> None:
    append, reached = Partition.append, Partition._reached

    def append_and_count(self: Partition, *arguments: Any) -> Appended:
        appended = append(self, *arguments)
        self._reached(self.log.end)
        return appended

    patch.setattr(Partition, "append", append_and_count)
    patch.setattr(Partition, "_reached", lambda self, _: reached(self, self.log.end))


def followers_cut_back_to_the_high_watermark(patch: Patch) -> None:
    """As Kafka did before KIP-101, and leaders ask for nothing else."""
    begin = Followed.__init__

    def begin_cut(self: Followed, *arguments: object) -> None:
        begin(self, *arguments)  # type: ignore[arg-type]
        if self.log.high_watermark < self.log.end:
            self.log.truncate_to(self.log.high_watermark)

    patch.setattr(Followed, "__init__", begin_cut)
    patch.setattr(serving, "judge", lambda *_: None)


def new_leader_tells_the_end_at_once(patch: Patch) -> None:
    patch.setattr(Partition, "is_established", True)


def shrink_counts_before_it_is_committed(patch: Patch) -> None:
    recount, propose = InSync._recount, Partition.proposal

    def recount_proposed(self: InSync) -> bool:
        if self._asked is None:
            return recount(self)
        self._counting = tuple(self._states_of(self._asked))
        return self._advance()

    def propose_and_advance(self: Partition) -> tuple[ProposedMember, ...] | None:
        members = propose(self)
        self._advance(self.insync.high_watermark)
        return members

    patch.setattr(InSync, "_recount", recount_proposed)
    patch.setattr(Partition, "proposal", propose_and_advance)


def a_leader_that_came_out_of_nowhere_gets_no_new_epoch(patch: Patch) -> None:
    with_epochs = leadership.with_epochs

    def with_old_epoch(
        before: PartitionState, after: PartitionState, *, renew: bool = False
    ) -> PartitionState | None:
        changed = with_epochs(before, after, renew=renew)
        if changed is None or NO_LEADER not in (before.leader, after.leader):
            return changed
        return msgspec.structs.replace(changed, leader_epoch=before.leader_epoch)

    patch.setattr("penstock.core.metadata.decisions.brokers.with_epochs", with_old_epoch)


def followers_join_the_isr_too_early(patch: Patch) -> None:
    """As soon as they fetch, whatever they lack."""
    belongs = InSync._belongs

    def belongs_if_it_fetches(self: InSync, node: NodeId, log_end: Offset, now: Instant) -> bool:
        follower = self.follower(node)
        if follower is None or node in self.assignment.isr:
            return belongs(self, node, log_end, now)
        return follower.broker_epoch >= 0 and not follower.refused

    patch.setattr(InSync, "_belongs", belongs_if_it_fetches)


def isr_additions_count_once_committed(patch: Patch) -> None:
    """The newcomer may be elected before the leader counts it."""

    def recount(self: InSync) -> bool:
        self._counting = tuple(self._states_of(dict.fromkeys(self._state.isr)))
        self._may_advance = self.has_minimum
        return self._advance()

    patch.setattr(InSync, "_recount", recount)


def high_watermark_moves_below_the_minimum(patch: Patch) -> None:
    patch.setattr(InSync, "has_minimum", True)


def followers_forget_producers(patch: Patch) -> None:
    append = Followed.append

    def append_only(self: Followed, batches: bytes, headers: Sequence[BatchHeader]) -> None:
        append(self, batches, [header._replace(producer_id=ProducerId(-1)) for header in headers])

    patch.setattr(Followed, "append", append_only)


def groups_answer_before_the_log_is_replicated(patch: Patch) -> None:
    patch.setattr(CoordinatorHost, "_release_when_acknowledged", lambda self, answers: self._release(answers))


def controller_answers_before_the_commit(patch: Patch) -> None:
    """To clients; brokers would notice at once."""
    release = Controller._release

    def release_early(self: Controller) -> None:
        release(self)
        for entry in [entry for entry in self._waiting if isinstance(entry.reply, CreatedTopic | Done)]:
            self._waiting.remove(entry)
            entry.done(entry.reply, Offset(0))

    patch.setattr(Controller, "_release", release_early)


def anybody_may_be_elected(patch: Patch) -> None:
    elected = leadership.elected

    def elect(
        partition: PartitionState, image: MetadataImage, minimum: int, *, unclean: bool
    ) -> PartitionState:
        return elected(partition, image, minimum, unclean=True)

    patch.setattr(leadership, "elected", elect)


def consumers_read_to_the_log_end(patch: Patch) -> None:
    patch.setattr(Partition, "high_watermark", property(lambda self: self.log.end, lambda self, _: None))


def old_generations_may_commit(patch: Patch) -> None:
    commit = import_module("penstock.core.groups.offsets.commit")
    why_not = commit._why_not

    def hardly_ever(group: ClassicGroup | None, command: CommitOffsets) -> Why | None:
        why: Why | None = why_not(group, command)
        return None if why in (Why.ILLEGAL_GENERATION, Why.UNKNOWN_MEMBER) else why

    patch.setattr(commit, "_why_not", hardly_ever)


def followers_never_cut_back(patch: Patch) -> None:
    patch.setattr(serving, "judge", lambda *_: None)


@dataclass(frozen=True)
class PlantedFault:
    """What is planted, where the nodes come from, and within how many seeds it is found."""

    plant: Callable[[Patch], None]
    runs_max: int
    plan: FaultPlan | None = None
    sync_max_ns: int | None = None
    make: MakeBackstage = field(default=production)
    name: str = ""

    @property
    def title(self) -> str:
        return (self.name or self.plant.__name__).replace("_", " ")
