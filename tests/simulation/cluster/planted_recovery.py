"""Faults planted into what comes after a loss: recovery, elections by report, doubting voters, repair.

Written against what the documents promise, without regard to how the code keeps it. Where and how often
they are found: `planted_faults`.
"""

from typing import Any

import pytest

from penstock.broker.cluster import raft_host, raft_recovery, raft_storage
from penstock.broker.coordinator import Coordinator
from penstock.broker.partitions import FollowerPartition
from penstock.broker.partitions.replica_repair import ReplicaRepair
from penstock.broker.partitions.replica_reports import ReplicaReporter
from penstock.core.groups import classic_protocol
from penstock.core.groups.classic_group import ClassicGroup
from penstock.core.metadata import elections
from penstock.core.model import Offset
from penstock.core.raft import PersistHardState, Raft
from penstock.core.raft.state import RaftState
from penstock.core.records.batch import read_header
from penstock.core.replica import IsrTracker
from penstock.storage.disk import Disk
from penstock.storage.journal.journal import FrameBuilder, LogJournal
from penstock.storage.log import PartitionLog, refill
from penstock.storage.log.refill import GoodBytes, SegmentDraft
from penstock.storage.log.segment import SegmentReader

Patch = pytest.MonkeyPatch
# Generations after which they begin anew.
ENOUGH = 2


def appends_that_do_not_fit_count_as_durable(patch: Patch) -> None:
    take = LogJournal.take

    def take_anyway(self: LogJournal, frame: FrameBuilder, end: Offset, synced: Offset) -> bool:
        take(self, frame, end, synced)
        return True

    patch.setattr(LogJournal, "take", take_anyway)


def empty_logs_count_as_complete(patch: Patch) -> None:
    """A log that is missing is made again, and nobody is told."""
    patch.setattr(ReplicaReporter, "on_lost", lambda *_: None)
    patch.setattr(ReplicaRepair, "on_log_lost", lambda *_: None)
    patch.setattr(ReplicaRepair, "may_create", lambda *_: True)


def nobody_waits_for_replicas_that_may_be_whole(patch: Patch) -> None:
    """Whoever comes back first leads with what it has left."""
    patch.setattr(elections, "_is_all_there_is", lambda *_, **__: True)


def doubts_are_not_stored(patch: Patch) -> None:
    for module in (raft_recovery, raft_host):
        patch.setattr(
            module,
            "write_hard_state",
            lambda disk, ballot: raft_storage.write_hard_state(disk, ballot._replace(doubt=None)),
        )


class DoubtsUntilItHearsOfAnybody(RaftState):
    def settle_doubt(self) -> None:
        if self.doubt is not None:
            self.hard_state = self.hard_state._replace(doubt=None)
            self.effects.append(PersistHardState(self.hard_state))


class EndsItsDoubtAtOnce(Raft):
    """Before it has caught up with anybody."""

    state_type = DoubtsUntilItHearsOfAnybody


def damaged_entries_are_skipped(patch: Patch) -> None:
    """A raft log is cut in front of damage, as a torn write is, and that is all."""
    patch.setattr(raft_recovery, "_note_loss", lambda *_: True)
    patch.setattr(raft_recovery, "_loss_of", lambda *_, **__: "")


def segments_are_sent_unverified(patch: Patch) -> None:
    patch.setattr(SegmentReader, "is_servable", lambda *_: True)


def damaged_replicas_do_not_resign(patch: Patch) -> None:
    patch.setattr(ReplicaRepair, "_resign", lambda *_: None)


def damaged_replicas_follow_on_without_a_refill(patch: Patch) -> None:
    patch.setattr(ReplicaRepair, "repair", lambda *_: False)


def a_refill_leaves_out_what_was_damaged(patch: Patch) -> None:
    begin = SegmentDraft.__init__

    def begin_with_what_is_good(self: SegmentDraft, *arguments: Any, may_have_gaps: bool) -> None:
        begin(self, *arguments, may_have_gaps=True)
        self._parts = [part for part in self._parts if isinstance(part, GoodBytes)]

    patch.setattr(SegmentDraft, "__init__", begin_with_what_is_good)


def a_refill_takes_whatever_comes(patch: Patch) -> None:
    """Bytes of the range are written as another replica has them, one of them wrong, and nobody looks."""
    add = SegmentDraft.add

    def add_unseen(self: SegmentDraft, disk: Disk, batches: Any) -> None:
        wrong = bytearray(batches)
        wrong[-1] ^= 1
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(refill, "check_batches", lambda content, **_: _headers(content))
            add(self, disk, bytes(wrong))

    patch.setattr(SegmentDraft, "add", add_unseen)


def _headers(content: bytes) -> list[Any]:
    headers, position = [], 0
    while position < len(content):
        headers.append(read_header(content, position))
        position += headers[-1].size_bytes
    return headers


def a_refill_leaves_the_producers_as_they_are(patch: Patch) -> None:
    """A log that started without some records does not count as unsure, not even when it has them again."""
    patch.setattr(PartitionLog, "is_unsure", property(lambda _: False))


def followers_take_the_end_for_the_high_watermark(patch: Patch) -> None:
    def advance(self: FollowerPartition, _: Offset) -> None:
        self.log.set_high_watermark(self.log.end)

    patch.setattr(FollowerPartition, "advance_high_watermark", advance)


def one_of_the_isr_is_enough(patch: Patch) -> None:
    """The high watermark is what the leader and its fastest follower have."""

    def advance(self: IsrTracker) -> bool:
        fastest = max((follower.synced for follower in self._counting), default=self._synced)
        safe = min(self._synced, fastest)
        if safe <= self.high_watermark or not self._may_advance:
            return False
        self.high_watermark = safe
        return True

    patch.setattr(IsrTracker, "_advance", advance)


def coordinators_serve_before_they_have_loaded(patch: Patch) -> None:
    patch.setattr(Coordinator, "_load", lambda self: self._loaded(None))


def generations_begin_anew(patch: Patch) -> None:
    start = classic_protocol._start_generation

    def start_anew(group: ClassicGroup, outcome: Any) -> None:
        if group.generation > ENOUGH:
            group.generation = 0
        start(group, outcome)

    patch.setattr(classic_protocol, "_start_generation", start_anew)


def groups_keep_their_facts_in_memory(patch: Patch) -> None:
    def apply_only(self: Coordinator[Any, Any, Any], facts: Any) -> bool:
        for fact in facts:
            self.machine.apply(fact)
        return True

    patch.setattr(Coordinator, "append", apply_only)


def new_leaders_call_everything_committed(patch: Patch) -> None:
    begin = IsrTracker.__init__

    def begin_at_the_end(self: IsrTracker, *arguments: Any, **options: Any) -> None:
        me, state, epoch_start, synced, _, *rest = arguments
        begin(self, me, state, epoch_start, synced, synced, *rest, **options)

    patch.setattr(IsrTracker, "__init__", begin_at_the_end)
