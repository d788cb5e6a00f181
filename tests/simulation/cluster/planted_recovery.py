"""Faults planted into what comes after a loss: recovery, elections by report, doubting voters, repair.

Written against what the documents promise, without regard to how the code keeps it. Where and how often
they are found: `planted_faults`.
"""

from typing import Any

import pytest

from penstock.broker.cluster import raft_host, raft_recovery
from penstock.broker.partitions.replica_repair import ReplicaRepair
from penstock.broker.partitions.replica_reports import LOST_NOTHING, ReplicaReporter
from penstock.core.raft import PersistDoubt, Raft
from penstock.core.raft.state import RaftState
from penstock.storage.log.refill import GoodBytes, SegmentDraft
from penstock.storage.log.segment import SegmentReader

Patch = pytest.MonkeyPatch
# Generations after which they begin anew.
ENOUGH = 2


# The journal.


# Elections by report.


def replicas_report_no_loss(patch: Patch) -> None:
    patch.setattr("penstock.broker.partitions.replica_reports.loss_in", lambda _: LOST_NOTHING)


def empty_logs_count_as_complete(patch: Patch) -> None:
    """A log that is missing is made again, and nobody is told."""
    patch.setattr(ReplicaReporter, "on_lost", lambda *_: None)
    patch.setattr(ReplicaRepair, "on_log_lost", lambda *_: None)
    patch.setattr(ReplicaRepair, "may_create", lambda *_: True)


# Voters in doubt.


def doubts_are_not_stored(patch: Patch) -> None:
    for module in (raft_recovery, raft_host):
        patch.setattr(module, "write_doubt", lambda *_: None)


class DoubtsUntilItHearsOfAnybody(RaftState):
    def settle_doubt(self) -> None:
        if self.doubt is not None:
            self.doubt = None
            self.effects.append(PersistDoubt(None))


class EndsItsDoubtAtOnce(Raft):
    """Before it has caught up with anybody."""

    state_type = DoubtsUntilItHearsOfAnybody


def damaged_entries_are_skipped(patch: Patch) -> None:
    """A raft log is cut in front of damage, as a torn write is, and that is all."""
    patch.setattr(raft_recovery, "_note_loss", lambda *_: True)
    patch.setattr(raft_recovery, "_loss_of", lambda *_, **__: "")


# Verification and repair.


def segments_are_sent_unverified(patch: Patch) -> None:
    patch.setattr(SegmentReader, "is_servable", lambda *_: True)


def damaged_replicas_do_not_resign(patch: Patch) -> None:
    patch.setattr(ReplicaRepair, "_resign", lambda *_: None)


def a_refill_leaves_out_what_was_damaged(patch: Patch) -> None:
    begin, check = SegmentDraft.__init__, SegmentDraft._check

    def begin_with_what_is_good(self: SegmentDraft, *arguments: Any, may_have_gaps: bool) -> None:
        begin(self, *arguments, may_have_gaps=True)
        self._parts = [part for part in self._parts if isinstance(part, GoodBytes)]

    patch.setattr(SegmentDraft, "__init__", begin_with_what_is_good)
    patch.setattr(SegmentDraft, "_check", check)


# Replication, groups and the log.
