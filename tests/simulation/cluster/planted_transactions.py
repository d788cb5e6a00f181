"""Transactions that are wrong in one way each: faults of coordinators, of leaders and of groups.

As in `planted_faults`, which runs them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pytest

from penstock.broker.coordinator.runtime import Coordinator
from penstock.broker.coordinator.transactions import TransactionService, sink_of
from penstock.broker.partitions import FollowerPartition, LeaderPartition
from penstock.broker.transactions.marker_sender import LeaderMarkerSender
from penstock.broker.transactions.markers import TransactionMarker
from penstock.broker.transactions.verification import TransactionVerification
from penstock.core.groups.offset_facts import OffsetCommitted, PendingOffsets, TransactionEnded
from penstock.core.model import ApiError, Now, Offset, ProducerEpoch, Timestamp
from penstock.core.records import BatchHeader
from penstock.core.replica.transactions import AbortedTransaction, OpenTransactions
from penstock.core.transactions import (
    Command,
    EndTransaction,
    Fact,
    InitProducer,
    ProducerIdentity,
    TransactionCoordinator,
    TransactionOutcome,
    TransactionStored,
    coordinator,
    transitions,
)
from penstock.storage.log.index import ActiveIndex

Patch = pytest.MonkeyPatch


def markers_go_out_before_the_outcome_is_committed(patch: Patch) -> None:
    def find_at_once(self: TransactionService, transactional_id: str) -> None:
        found = self._coordinators.find(sink_of(transactional_id))
        if not isinstance(found, ApiError):
            known = found.machine.image.transactions.get(transactional_id)
            if known is not None and known.state.is_prepared:
                self._end(found, known)

    patch.setattr(TransactionService, "_find_prepared", find_at_once)


def ends_of_old_epochs_are_obeyed(patch: Patch) -> None:
    """A delayed EndTxn ends whatever is open."""
    ended = coordinator.ended

    def end_of_anybody(
        known: TransactionStored | None, command: EndTransaction, now: Timestamp
    ) -> object:
        if known is not None and known.state is transitions._S.ONGOING:
            command = replace(command, producer=ProducerIdentity(known.producer_id, known.producer_epoch))
        return ended(known, command, now)

    patch.setattr(coordinator, "ended", end_of_anybody)


def batches_are_not_verified(patch: Patch) -> None:
    patch.setattr(TransactionVerification, "admits", lambda *_: True)


def the_last_stable_offset_is_the_high_watermark(patch: Patch) -> None:
    patch.setattr(OpenTransactions, "last_stable_offset", lambda _self, high_watermark: high_watermark)


def markers_count_before_they_are_replicated(patch: Patch) -> None:
    """The last stable offset passes a transaction whose marker the next leader may not have."""
    end = OpenTransactions.end

    def end_at_once(self: OpenTransactions, *arguments: object) -> AbortedTransaction | None:
        ended = end(self, *arguments)  # type: ignore[arg-type]
        self._ended.clear()
        return ended

    patch.setattr(OpenTransactions, "end", end_at_once)


def followers_forget_aborted_transactions(patch: Patch) -> None:
    append, note = FollowerPartition.append, ActiveIndex.note_aborted
    following: list[None] = []

    def append_and_forget(self: FollowerPartition, *arguments: object) -> None:
        following.append(None)
        try:
            append(self, *arguments)  # type: ignore[arg-type]
        finally:
            following.pop()

    def note_if_leading(self: ActiveIndex, aborted: AbortedTransaction) -> None:
        if not following:
            note(self, aborted)

    patch.setattr(FollowerPartition, "append", append_and_forget)
    patch.setattr(ActiveIndex, "note_aborted", note_if_leading)


def recovery_forgets_aborted_transactions(patch: Patch) -> None:
    patch.setattr("penstock.storage.log.recovery.fold_batch", _fold_without_aborts)


def _fold_without_aborts(producers: object, header: BatchHeader, *arguments: object) -> None:
    state = __import__("penstock.storage.log.state", fromlist=["fold_batch"])
    state.fold_batch(producers, header, *arguments)


def offsets_of_aborted_transactions_are_applied(patch: Patch) -> None:
    end = PendingOffsets.end

    def end_as_committed(self: PendingOffsets, fact: TransactionEnded) -> list[OffsetCommitted]:
        return end(self, replace(fact, is_commit=True))

    patch.setattr(PendingOffsets, "end", end_as_committed)


def offsets_are_applied_before_the_marker(patch: Patch) -> None:
    """Offsets of open transactions are not waited for: the next member begins behind or in front of them."""
    patch.setattr(PendingOffsets, "holds", lambda *_: False)


def timeouts_keep_the_epoch(patch: Patch) -> None:
    """A producer whose transaction was aborted goes on in the next one."""
    fenced = coordinator.fenced

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

    def send_one(self: LeaderMarkerSender, marker: TransactionMarker, *arguments: object) -> None:
        send(self, marker._replace(partitions=marker.partitions[:1]), *arguments)  # type: ignore[arg-type]

    patch.setattr(LeaderMarkerSender, "send", send_one)


def markers_are_not_sent_again(patch: Patch) -> None:
    """What a leader did not take counts as written."""
    def take_anything(_self: object, unsent: object, partition: object, _error: object) -> None:
        unsent.partitions.pop(partition, None)  # type: ignore[attr-defined]

    patch.setattr(LeaderMarkerSender, "_take", take_anything)


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
    initialized = coordinator.initialized

    def initialize_the_same(
        known: TransactionStored | None, command: InitProducer, now: Timestamp
    ) -> object:
        after = initialized(known, command, now)
        if known is None or not isinstance(after, TransactionStored) or after.state.is_prepared:
            return after
        return replace(after, producer_epoch=known.producer_epoch)

    patch.setattr(coordinator, "initialized", initialize_the_same)


def coordinators_answer_before_their_log_is_replicated(patch: Patch) -> None:
    """An outcome that was acknowledged may be forgotten; of transactions only."""
    release = Coordinator._release_when_committed

    def release_early(self: Coordinator[object, Command, Fact], end: Offset, replies: Iterable[object]) -> None:
        if isinstance(self.machine, TransactionCoordinator):
            self._release(replies)  # type: ignore[arg-type]
        else:
            release(self, end, replies)  # type: ignore[arg-type]

    patch.setattr(Coordinator, "_release_when_committed", release_early)
