"""Transactions that are wrong in one way each: faults of coordinators, of leaders and of groups.

As in `planted_faults`, which runs them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.broker import fetch
from penstock.broker.coordinator.runtime import Coordinator
from penstock.broker.coordinator.transactions import TransactionService
from penstock.broker.partitions import FollowerPartition
from penstock.broker.transactions.marker_sender import LeaderMarkerSender
from penstock.broker.transactions.markers import TransactionMarker
from penstock.broker.transactions.verification import TransactionVerification
from penstock.core.groups.offset_facts import OffsetCommitted, PendingOffsets, TransactionEnded
from penstock.core.model import ApiError, Now, Offset, Timestamp, TopicPartition
from penstock.core.records import BatchHeader
from penstock.core.replica import ProducerStateManager
from penstock.core.replica.transactions import AbortedTransaction, OpenTransactions
from penstock.core.transactions import (
    BatchCommitted,
    BatchMember,
    CommitBatch,
    EndTransaction,
    InitProducer,
    ProducerIdentity,
    TransactionCoordinator,
    TransactionImage,
    TransactionOutcome,
    TransactionStored,
    coordinator,
    sink_of,
    transitions,
)
from penstock.storage.log import recovery
from penstock.storage.log.index import ActiveIndex
from penstock.storage.log.state import fold_batch

Patch = pytest.MonkeyPatch


def ends_of_old_epochs_are_obeyed(patch: Patch) -> None:
    """A delayed EndTxn ends whatever is open."""
    ended = transitions.ended

    def end_of_anybody(known: TransactionStored | None, command: EndTransaction, now: Timestamp) -> object:
        if known is not None and known.state is transitions._S.ONGOING:
            command = replace(command, producer=ProducerIdentity(known.producer_id, known.producer_epoch))
        return ended(known, command, now)

    patch.setattr(coordinator, "ended", end_of_anybody)


def batches_are_not_verified(patch: Patch) -> None:
    patch.setattr(TransactionVerification, "admits", lambda *_: True)


def the_last_stable_offset_is_the_high_watermark(patch: Patch) -> None:
    patch.setattr(OpenTransactions, "last_stable_offset", lambda _self, high_watermark: high_watermark)


def followers_forget_aborted_transactions(patch: Patch) -> None:
    append, note = FollowerPartition.append, ActiveIndex.note_aborted
    following: list[None] = []

    def append_and_forget(self: FollowerPartition, *arguments: Any) -> None:
        following.append(None)
        try:
            append(self, *arguments)
        finally:
            following.pop()

    def note_if_leading(self: ActiveIndex, aborted: AbortedTransaction) -> None:
        if not following:
            note(self, aborted)

    patch.setattr(FollowerPartition, "append", append_and_forget)
    patch.setattr(ActiveIndex, "note_aborted", note_if_leading)


def recovery_forgets_aborted_transactions(patch: Patch) -> None:
    def fold_without_aborts(
        producers: ProducerStateManager, header: BatchHeader, content: bytes, now: Timestamp
    ) -> None:
        fold_batch(producers, header, content, now)

    patch.setattr(recovery, "fold_batch", fold_without_aborts)


def offsets_of_aborted_transactions_are_applied(patch: Patch) -> None:
    end = PendingOffsets.end

    def end_as_committed(self: PendingOffsets, fact: TransactionEnded) -> list[OffsetCommitted]:
        return end(self, replace(fact, is_commit=True))

    patch.setattr(PendingOffsets, "end", end_as_committed)


def offsets_of_open_transactions_are_not_waited_for(patch: Patch) -> None:
    """The next member begins in front of them, and does the same work again."""
    patch.setattr(PendingOffsets, "holds", lambda *_: False)


def timeouts_keep_the_epoch(patch: Patch) -> None:
    """A producer whose transaction was aborted goes on in the next one."""
    fenced = transitions.fenced

    def fence_nobody(ongoing: TransactionStored, now: Timestamp) -> TransactionStored:
        return replace(fenced(ongoing, now), producer_epoch=ongoing.producer_epoch)

    patch.setattr(coordinator, "fenced", fence_nobody)


def new_coordinators_forget_what_is_prepared(patch: Patch) -> None:
    resume = TransactionCoordinator.resume

    def resume_without(self: TransactionCoordinator, now: Now) -> TransactionOutcome:
        outcome = resume(self, now)
        outcome.events.clear()
        return outcome

    patch.setattr(TransactionCoordinator, "resume", resume_without)


def markers_go_to_the_first_partition_only(patch: Patch) -> None:
    send = LeaderMarkerSender.send

    def send_one(self: LeaderMarkerSender, marker: TransactionMarker, *arguments: Any) -> None:
        send(self, marker._replace(partitions=marker.partitions[:1]), *arguments)

    patch.setattr(LeaderMarkerSender, "send", send_one)


def markers_are_not_sent_again(patch: Patch) -> None:
    """What a leader did not take counts as written."""

    def take_anything(_: LeaderMarkerSender, unsent: Any, partition: TopicPartition, _error: object) -> None:
        unsent.partitions.pop(partition, None)

    patch.setattr(LeaderMarkerSender, "_take", take_anything)


def markers_are_sent_before_the_outcome_is_replicated(patch: Patch) -> None:
    """A new coordinator may decide otherwise."""

    def find_at_once(self: TransactionService, transactional_id: str) -> None:
        found = self._coordinators.find(sink_of(transactional_id))
        if isinstance(found, Coordinator):
            known = found.machine.image.transactions.get(transactional_id)
            if known is not None and known.state.is_prepared:
                self._end(found, known)

    patch.setattr(TransactionService, "_find_prepared", find_at_once)


def transactions_of_a_producer_share_an_epoch(patch: Patch) -> None:
    """The new protocol without its epochs: the first batch adds a partition to whatever is open."""
    prepared = transitions._prepared

    def prepare_with_old_epoch(
        known: TransactionStored, command: EndTransaction, now: Timestamp
    ) -> TransactionStored:
        after = prepared(known, command, now)
        return replace(after, producer_epoch=command.producer.epoch)

    patch.setattr(transitions, "_prepared", prepare_with_old_epoch)


def new_incarnations_keep_the_epoch(patch: Patch) -> None:
    initialized = transitions.initialized

    def initialize_the_same(known: TransactionStored | None, command: InitProducer, now: Timestamp) -> object:
        after = initialized(known, command, now)
        if known is None or not isinstance(after, TransactionStored) or after.state.is_prepared:
            return after
        return replace(after, producer_epoch=known.producer_epoch)

    patch.setattr(coordinator, "initialized", initialize_the_same)


def coordinators_answer_before_their_log_is_replicated(patch: Patch) -> None:
    """An outcome that was acknowledged may be forgotten; of transactions only."""
    release = Coordinator._release_when_committed

    def release_early(self: Coordinator[Any, Any, Any], end: Offset, replies: Sequence[Any]) -> None:
        if isinstance(self.machine, TransactionCoordinator):
            self._release(replies)
        else:
            release(self, end, replies)

    patch.setattr(Coordinator, "_release_when_committed", release_early)


def followers_ignore_the_isolation_level(patch: Patch) -> None:
    """Whoever reads from one gets what is open, or was aborted."""
    read_one = fetch.read_one

    def read_anything(
        partition: fetch.ReadablePartition, want: fetch.FetchPartition, limits: fetch.FetchLimits, size: int
    ) -> fetch.FetchedPartition:
        if isinstance(partition, FollowerPartition):
            limits = limits._replace(read_committed=False)
        return read_one(partition, want, limits, size)

    patch.setattr(fetch, "read_one", read_anything)


def new_coordinators_forget_batches(patch: Patch) -> None:
    """A batch that is repeated after a failover is committed again."""
    resume = TransactionCoordinator.resume

    def resume_without(self: TransactionCoordinator, now: Now) -> TransactionOutcome:
        self.image.batches.clear()
        return resume(self, now)

    patch.setattr(TransactionCoordinator, "resume", resume_without)


def a_batch_leaves_out_its_last_transaction(patch: Patch) -> None:
    def committed(sink: str, batch: str, members: tuple[BatchMember, ...], now: Timestamp) -> BatchCommitted:
        return BatchCommitted(sink, batch, members[:-1], now)

    patch.setattr(coordinator, "BatchCommitted", committed)


def a_batch_commits_whatever_its_tasks_have_open(patch: Patch) -> None:
    """Though the driver lists an attempt of a task that has a successor."""
    commit = TransactionCoordinator._commit_batch

    def commit_open(self: TransactionCoordinator, command: CommitBatch, outcome: TransactionOutcome) -> None:
        known = self.image.transactions
        members = tuple(
            BatchMember(one, known[one].producer_id, known[one].producer_epoch)
            for one, _, _ in command.members
            if one in known
        )
        commit(self, replace(command, members=members), outcome)

    patch.setattr(TransactionCoordinator, "_commit_batch", commit_open)


def a_batch_that_is_refused_counts_as_committed(patch: Patch) -> None:
    """Its key is taken before its transactions are looked at."""
    commit = TransactionCoordinator._commit_batch

    def commit_and_remember(
        self: TransactionCoordinator, command: CommitBatch, outcome: TransactionOutcome
    ) -> None:
        commit(self, command, outcome)
        if not outcome.facts and isinstance(outcome.responses[-1][1], ApiError):
            outcome.facts.append(BatchCommitted(command.sink, command.batch, (), outcome.now.wall))

    patch.setattr(TransactionCoordinator, "_commit_batch", commit_and_remember)


def a_batch_leaves_its_producers_their_epoch(patch: Patch) -> None:
    """A task goes on in the transaction that the batch has committed."""
    commit = TransactionImage._commit

    def commit_the_same(self: TransactionImage, fact: BatchCommitted) -> None:
        commit(self, fact)
        for member in fact.members:
            known = self.transactions.get(member.transactional_id)
            if known is not None and self.unstored.get(member.transactional_id) == fact.sink:
                self.transactions[member.transactional_id] = replace(
                    known, producer_epoch=member.producer_epoch
                )

    patch.setattr(TransactionImage, "_commit", commit_the_same)
