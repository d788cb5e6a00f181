"""Drives a queue coordinator as its host does: applies facts, collects replies, moves time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.core.model import (
    MILLISECOND,
    ErrorKind,
    Instant,
    LeaderEpoch,
    Now,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Timestamp,
    TopicId,
)
from penstock.core.queues import (
    AcknowledgeRecords,
    AcquireRecords,
    ClaimResults,
    DeadLettersFound,
    DescribeQueue,
    FindDeadLetters,
    FindLeases,
    LeaseClaim,
    LeasesFound,
    OfferRecords,
    OpenQueue,
    QueueCommand,
    QueueCoordinator,
    QueueDescription,
    QueueEvent,
    QueueFact,
    QueueId,
    QueueOptions,
    QueueOutcome,
    QueueRecord,
    QueueReply,
    QueueSettings,
    QueueStored,
    QueueTransactionEnded,
    RecordsAcquired,
    ReleaseConsumer,
    ReleaseRecords,
    Run,
    StoredRecord,
    TransactionProducer,
)

WALL_START_MS = 1_700_000_000_000
QUEUE = QueueId("workers", TopicId(UUID(int=7)), PartitionIndex(0))
LEASE_MS = 30_000


def ignore(_: QueueReply) -> None:
    """In the place of the callback that the driver gives every command."""


def image_of(machine: QueueCoordinator) -> dict[QueueId, tuple[QueueStored, list[StoredRecord]]]:
    """All that is durable, in a form that can be compared."""
    return {
        queue_id: (queue.head, [queue.entries[offset].stored() for offset in sorted(queue.entries)])
        for queue_id, queue in machine.queues.items()
    }


class Driver:
    """A host with a log that never fails, which is also the leader of the data partition."""

    def __init__(
        self, options: QueueOptions | None = None, facts: Iterable[QueueFact] = (), now_ms: int = 0
    ) -> None:
        self.options = options
        self.machine = QueueCoordinator(options)
        self.now_ms = now_ms
        self.wall_skew_ms = 0
        self.log: list[QueueFact] = []
        self.events: list[QueueEvent] = []
        self.epoch = LeaderEpoch(1)
        self.tokens = 100
        for fact in facts:
            self.machine.apply(fact)
            self.log.append(fact)
        self.take(self.machine.resume(self.now))

    @property
    def now(self) -> Now:
        wall = Timestamp(WALL_START_MS + self.now_ms + self.wall_skew_ms)
        return Now(Instant(self.now_ms * MILLISECOND), wall)

    def failover(self) -> "Driver":
        """Another node takes over what is in the log."""
        successor = Driver(self.options, self.log, self.now_ms)
        successor.epoch, successor.tokens = self.epoch, self.tokens
        successor.wall_skew_ms = self.wall_skew_ms
        return successor

    def rewrite(self) -> None:
        """The log is its snapshot from now on, which is applied once more as it is written."""
        self.log = []
        for fact in self.machine.snapshot():
            self.machine.apply(fact)
            self.log.append(fact)

    def take(self, outcome: QueueOutcome) -> list[QueueReply]:
        self.events += outcome.events
        for fact in outcome.facts:
            self.machine.apply(fact)
            self.log.append(fact)
        return [reply for _, reply in outcome.responses]

    def ask(self, command: QueueCommand) -> Any:
        (reply,) = self.take(self.machine.decide(command, self.now))
        return reply

    def pass_ms(self, duration_ms: int) -> None:
        """Time goes by, and whatever is due happens when it is due."""
        until = self.now_ms + duration_ms
        while True:
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > until * MILLISECOND:
                break
            self.now_ms = max(self.now_ms, -(-deadline // MILLISECOND))
            self.take(self.machine.expire(self.now))
        self.now_ms = until

    def leases_of(self, consumer: str) -> tuple[int, ...]:
        found = self.ask(FindLeases(on_reply=ignore, queue=QUEUE, consumer=consumer))
        assert isinstance(found, LeasesFound)
        return found.tokens

    def lose(self, consumer: str, tokens: tuple[int, ...] | None = None) -> Any:
        """A consumer is gone, with these leases or all that it has."""
        tokens = self.leases_of(consumer) if tokens is None else tokens
        return self.ask(ReleaseConsumer(on_reply=ignore, queue=QUEUE, consumer=consumer, tokens=tokens))

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        fact = QueueTransactionEnded(ProducerId(producer_id), is_commit)
        self.machine.apply(fact)
        self.log.append(fact)

    def open(
        self,
        settings: QueueSettings | None = None,
        log_start: int = 0,
        log_end: int = 2**40,
        epochs: dict[int, int] | None = None,
    ) -> Any:
        return self.ask(
            OpenQueue(
                on_reply=ignore,
                queue=QUEUE,
                leader_epoch=self.epoch,
                settings=settings or QueueSettings(),
                log_start=Offset(log_start),
                log_end=Offset(log_end),
                start=Offset(0),
                epochs=tuple((LeaderEpoch(epoch), Offset(at)) for epoch, at in (epochs or {}).items()),
            )
        )

    def offer(self, start: int, end: int) -> Any:
        plain = (Run(Offset(start), Offset(end)),)
        return self._offer(start, end, plain=plain)

    def offer_records(self, records: Sequence[QueueRecord]) -> Any:
        return self._offer(records[0].offset, records[-1].offset + 1, records=tuple(records))

    def _offer(self, start: int, end: int, **fields: Any) -> Any:
        return self.ask(
            OfferRecords(
                on_reply=ignore,
                queue=QUEUE,
                leader_epoch=self.epoch,
                start=Offset(start),
                end=Offset(end),
                **fields,
            )
        )

    def acquire(
        self,
        records_max: int = 10,
        consumer: str = "c1",
        lease_ms: int | None = None,
        offsets: Sequence[int] = (),
    ) -> Any:
        self.tokens += 1
        return self.ask(
            AcquireRecords(
                on_reply=ignore,
                queue=QUEUE,
                leader_epoch=self.epoch,
                consumer=consumer,
                records_max=records_max,
                token=self.tokens,
                lease_ms=lease_ms,
                offsets=tuple(map(Offset, offsets)),
            )
        )

    def acquired(
        self,
        records_max: int = 10,
        consumer: str = "c1",
        lease_ms: int | None = None,
        offsets: Sequence[int] = (),
    ) -> list[LeaseClaim]:
        """Lease records; returns what their receipts say."""
        reply = self.acquire(records_max, consumer, lease_ms, offsets)
        assert isinstance(reply, RecordsAcquired), reply
        return [LeaseClaim(record.offset, record.attempt, reply.token) for record in reply.records]

    def settle(
        self, command: type[Any], claims: Sequence[LeaseClaim], **fields: Any
    ) -> list[ErrorKind | None]:
        reply = self.ask(command(on_reply=ignore, queue=QUEUE, claims=tuple(claims), **fields))
        assert isinstance(reply, ClaimResults), reply
        return list(reply.errors)

    def acknowledge(self, *claims: LeaseClaim, **fields: Any) -> list[ErrorKind | None]:
        return self.settle(AcknowledgeRecords, claims, **fields)

    def release(self, *claims: LeaseClaim, **fields: Any) -> list[ErrorKind | None]:
        return self.settle(ReleaseRecords, claims, **fields)

    def dead_letters(self) -> DeadLettersFound:
        reply = self.ask(FindDeadLetters(on_reply=ignore, queue=QUEUE, records_max=100))
        assert isinstance(reply, DeadLettersFound)
        return reply

    def describe(self) -> QueueDescription:
        reply = self.ask(DescribeQueue(on_reply=ignore, queue=QUEUE))
        assert isinstance(reply, QueueDescription)
        return reply


def producer(producer_id: int = 5, epoch: int = 0) -> TransactionProducer:
    return TransactionProducer(ProducerId(producer_id), ProducerEpoch(epoch))


def offsets_of(claims: Iterable[LeaseClaim]) -> list[int]:
    return [claim.offset for claim in claims]


def ready(settings: QueueSettings | None = None, records: int = 3, **options: Any) -> Driver:
    """A driver whose queue has records 0, 1, …"""
    driver = Driver(replace(QueueOptions(), **options))
    driver.open(settings)
    driver.offer(0, records)
    return driver
