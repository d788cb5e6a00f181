"""Queues that are wrong in one way each: faults of their coordinators, and of the leaders that offer records.

As in `planted_faults`, which runs them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock.broker.coordinator.groups import GroupService
from penstock.broker.coordinator.runtime import Coordinator
from penstock.broker.queues.move_transaction import MoveTransaction
from penstock.broker.queues.record_reader import RecordReader
from penstock.broker.queues.redrive import Redriver
from penstock.core.model import MILLISECOND, ErrorKind, Instant, Now, Offset
from penstock.core.queues import (
    AcknowledgeRecords,
    FindLeases,
    FinishMoves,
    LeaseClaim,
    QueueCommand,
    QueueCoordinator,
    QueueFact,
    QueueId,
    QueueOutcome,
    QueueRecord,
    QueueStored,
    RecordsStored,
    RecordState,
    ReleaseConsumer,
    coordinator,
    record_headers,
)
from penstock.core.queues.delivery_order import DeliveryOrder, QueueEntry
from penstock.core.queues.facts import NO_TIME
from penstock.core.queues.queue import Queue
from penstock.core.records import Record
from penstock.server.kafka import share_acknowledgements
from penstock.server.kafka.handlers import share_fetch
from penstock.server.kafka.share_sessions import ShareSession
from penstock.storage.log import PartitionLog

Patch = pytest.MonkeyPatch


def leases_are_delivered_before_they_are_replicated(patch: Patch) -> None:
    """A new coordinator may not know of them."""
    release = Coordinator._release_when_committed

    def release_early(self: Coordinator[Any, Any, Any], end: Offset, replies: Sequence[Any]) -> None:
        if isinstance(self.machine, QueueCoordinator):
            self._release(replies)
        else:
            release(self, end, replies)

    patch.setattr(Coordinator, "_release_when_committed", release_early)


def new_coordinators_forget_leases(patch: Patch) -> None:
    go_live = Queue.go_live

    def go_live_without(self: Queue, now: Now) -> None:
        for entry in self.entries.values():
            if entry.lease is not None and entry.producer is None and self.order is None:
                entry.state, entry.lease = RecordState.AVAILABLE, None
        go_live(self, now)

    patch.setattr(Queue, "go_live", go_live_without)


def new_coordinators_take_leases_for_nearly_over(patch: Patch) -> None:
    """As if they had counted from the old coordinator's time."""
    resume = QueueCoordinator.resume

    def resume_late(self: QueueCoordinator, now: Now) -> QueueOutcome:
        outcome = resume(self, now)
        for queue in self.queues.values():
            for entry in queue.entries.values():
                if entry.lease is not None and entry.producer is None and queue.order is not None:
                    queue.order.renew(entry, Instant(now.instant + MILLISECOND))
        return outcome

    patch.setattr(QueueCoordinator, "resume", resume_late)


def receipts_are_not_compared(patch: Patch) -> None:
    """Whoever had a record once may settle it for its holder."""

    def problem_with(entry: QueueEntry | None, _claim: LeaseClaim, _consumer: str | None) -> ErrorKind | None:
        is_leased = entry is not None and entry.state is RecordState.LEASED
        return None if is_leased else ErrorKind.INVALID_RECORD_STATE

    patch.setattr(coordinator, "_problem_with_claim", problem_with)


def rewrites_forget_attempts(patch: Patch) -> None:
    stored = QueueEntry.stored
    patch.setattr(QueueEntry, "stored", lambda self: stored(self)._replace(attempts=0))


def rewrites_forget_what_is_leased(patch: Patch) -> None:
    snapshot = QueueCoordinator.snapshot

    def snapshot_without(self: QueueCoordinator) -> Iterator[QueueFact]:
        for fact in snapshot(self):
            if isinstance(fact, RecordsStored):
                kept = tuple(each for each in fact.records if each.state is not RecordState.LEASED)
                fact = replace(fact, records=kept)
            yield fact

    patch.setattr(QueueCoordinator, "snapshot", snapshot_without)


def aborted_transactions_finish_records(patch: Patch) -> None:
    end = Queue.end_transaction
    patch.setattr(
        Queue, "end_transaction", lambda self, offset, *, is_commit: end(self, offset, is_commit=True)
    )


def moves_do_not_wait_for_their_transaction(patch: Patch) -> None:
    """If it is aborted, the dead letter is nowhere."""
    finish = QueueCoordinator._finish_moves

    def finish_at_once(
        self: QueueCoordinator, queue: Queue, command: FinishMoves, outcome: QueueOutcome
    ) -> None:
        finish(self, queue, replace(command, producer=None), outcome)

    patch.setattr(QueueCoordinator, "_finish_moves", finish_at_once)


def new_coordinators_forget_delays(patch: Patch) -> None:
    go_live = Queue.go_live

    def go_live_at_once(self: Queue, now: Now) -> None:
        for entry in self.entries.values():
            entry.delay_ms = 0
        go_live(self, now)

    patch.setattr(Queue, "go_live", go_live_at_once)


def delivery_times_are_ignored(patch: Patch) -> None:
    attributes_of = record_headers.attributes_of

    def without_time(record: Record, *, is_key_ordered: bool) -> QueueRecord | None:
        found = attributes_of(record, is_key_ordered=is_key_ordered)
        return None if found is None else found._replace(deliver_at=NO_TIME)

    patch.setattr(record_headers, "attributes_of", without_time)


def records_of_a_key_do_not_wait_for_each_other(patch: Patch) -> None:
    patch.setattr(DeliveryOrder, "_key_of", lambda *_: None)


def a_delayed_record_lets_its_key_pass(patch: Patch) -> None:
    """It is behind those that came later when its delay is over."""
    first_of = DeliveryOrder._first_of

    def first_not_delayed(self: DeliveryOrder, key: int) -> QueueEntry | None:
        for offset in self._keys.get(key, ()):
            entry = self._entries.get(offset)
            if entry is not None and entry.state is RecordState.AVAILABLE and offset not in self.delayed:
                return entry
        return first_of(self, key)

    patch.setattr(DeliveryOrder, "_first_of", first_not_delayed)


def offers_go_beyond_the_last_stable_offset(patch: Patch) -> None:
    """Up to the high watermark: what is open is delivered, and what was aborted since."""
    read = RecordReader.read

    def read_all(self: RecordReader, *arguments: Any, **options: Any) -> None:
        with pytest.MonkeyPatch.context() as reading:
            reading.setattr(PartitionLog, "last_stable_offset", property(lambda log: log.high_watermark))
            read(self, *arguments, **options)

    patch.setattr(RecordReader, "read", read_all)


def renewals_are_forgotten(patch: Patch) -> None:
    patch.setattr(QueueCoordinator, "_renew", lambda *_: None)


def releases_end_whatever_their_consumer_has(patch: Patch) -> None:
    """Also what it has got since it came back, if they come late."""
    release = QueueCoordinator._release_consumer

    def release_all(
        self: QueueCoordinator, queue: Queue, command: ReleaseConsumer, outcome: QueueOutcome
    ) -> None:
        assert queue.order is not None
        held = queue.order.held_by(command.consumer)
        tokens = tuple(entry.lease.token for entry in held if entry.lease is not None)
        release(self, queue, replace(command, tokens=tokens), outcome)

    patch.setattr(QueueCoordinator, "_release_consumer", release_all)
    patch.setattr(GroupService, "may_be_share_member", lambda *_: False)


def sessions_end_what_their_member_got_in_others(patch: Patch) -> None:
    release_session = share_acknowledgements.release_all

    def release_all(call: Any, member: tuple[str, str], session: ShareSession, done: Any) -> None:
        def found(queue: QueueId, reply: Any) -> None:
            session.tokens.extend(getattr(reply, "tokens", ()))
            release_session(call, member, session, done)

        partition = next(iter(session.partitions), None)
        queue = None if partition is None else share_acknowledgements.queue_of(call, member[0], *partition)
        if isinstance(queue, QueueId):
            ask = FindLeases(on_reply=partial(found, queue), queue=queue, consumer=member[1])
            call.backend.queues.submit(ask)
        else:
            release_session(call, member, session, done)

    patch.setattr(share_fetch, "release_all", release_all)


def new_coordinators_forget_pauses(patch: Patch) -> None:
    resume = QueueCoordinator.resume

    def resume_all(self: QueueCoordinator, now: Now) -> QueueOutcome:
        for queue in self.queues.values():
            queue.stored = replace(queue.stored, is_paused=False)
        return resume(self, now)

    patch.setattr(QueueCoordinator, "resume", resume_all)


def new_leaders_resume_queues(patch: Patch) -> None:
    """What they open is not paused."""
    apply = Queue.apply

    def apply_resumed(self: Queue, fact: QueueFact, now: Now | None) -> None:
        if isinstance(fact, QueueStored) and fact.leader_epoch > self.stored.leader_epoch:
            fact = replace(fact, is_paused=False)
        apply(self, fact, now)

    patch.setattr(Queue, "apply", apply_resumed)


def redrives_finish_dead_letters_at_once(patch: Patch) -> None:
    """If the transaction that moves them is aborted, they are nowhere."""
    submit = MoveTransaction.submit

    def submit_at_once(self: MoveTransaction, command: QueueCommand) -> None:
        if isinstance(command, AcknowledgeRecords):
            self._peers.submit(replace(command, producer=None))
        else:
            submit(self, command)

    patch.setattr(MoveTransaction, "submit", submit_at_once)


def redrives_do_not_wait_for_the_queue(patch: Patch) -> None:
    """If that refuses, or hears of it too late, the dead letters are moved and there still."""

    def commit_at_once(self: Redriver, redrive: Any) -> None:
        claims = tuple(redrive.claims.values())
        redrive.transaction.submit(
            AcknowledgeRecords(
                on_reply=lambda _: None,
                queue=redrive.queue,
                claims=claims,
                producer=redrive.transaction.producer,
            )
        )
        redrive.transaction.commit(partial(self._committed, redrive))

    patch.setattr(Redriver, "_acknowledge", commit_at_once)


def times_to_live_are_ignored(patch: Patch) -> None:
    select = DeliveryOrder.select

    def select_all(self: DeliveryOrder, records_max: int, now: Now, expired_max: int) -> object:
        return select(self, records_max, now._replace(wall=NO_TIME), expired_max)

    patch.setattr(DeliveryOrder, "select", select_all)


def records_are_delivered_once_too_often(patch: Patch) -> None:
    fail = QueueCoordinator._fail

    def fail_late(self: QueueCoordinator, queue: Queue, *arguments: Any) -> None:
        head = queue.stored
        more = replace(head.settings, deliveries_max=head.settings.deliveries_max + 1)
        queue.stored = replace(head, settings=more)
        fail(self, queue, *arguments)
        queue.stored = head

    patch.setattr(QueueCoordinator, "_fail", fail_late)
