"""Queues on the coordinator runtime: what is delivered is on disk, and survives whoever delivered it."""

from functools import partial
from typing import Any
from uuid import UUID

from penstock.broker.coordinator import (
    Coordinator,
    CoordinatorOptions,
    Coordinators,
    CoordinatorSpec,
    queue_records,
)
from penstock.broker.coordinator.queue_records import QueueTransactions
from penstock.broker.transactions.markers import append_marker
from penstock.core.metadata import QUEUES_TOPIC, replay
from penstock.core.model import ErrorKind, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.core.queues import (
    AcknowledgeRecords,
    AcquireRecords,
    ClaimResults,
    DescribeQueue,
    LeaseClaim,
    LeasesExpired,
    OfferRecords,
    OpenQueue,
    QueueCommand,
    QueueCoordinator,
    QueueDescription,
    QueueEvent,
    QueueFact,
    QueueReply,
    QueueSettings,
    RecordsAcquired,
    Run,
)
from penstock.core.records import ControlRecord, ControlType
from penstock.storage.disk import CrashableDisk
from tests.unit.broker.coordinator.leader_bench import NODE, LeaderBench, topic_facts
from tests.unit.core.queues.queue_driver import LEASE_MS, QUEUE, image_of, producer

TOPIC_ID = TopicId(UUID(int=61))
EPOCH = LeaderEpoch(1)


class Observer:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[QueueEvent] = []
        self.load_failures = 0

    def on_fact(self, machine: QueueCoordinator, fact: QueueFact, *, is_new: bool) -> None:
        """Facts are looked at in the machine."""

    def on_event(self, event: QueueEvent) -> None:
        self.events.append(event)

    def on_closed(self, machine: QueueCoordinator) -> None:
        """Nothing to forget."""

    def on_load_failed(self, partition: TopicPartition) -> None:
        self.load_failures += 1


class QueueBench(LeaderBench):
    """A node whose coordinators keep queues."""

    def __init__(self, disk: CrashableDisk | None = None, epoch: int = 0) -> None:
        super().__init__(disk)
        self.observer = Observer()
        spec: CoordinatorSpec[QueueCoordinator, QueueCommand, QueueFact] = CoordinatorSpec(
            QUEUES_TOPIC,
            QueueCoordinator,
            queue_records,
            self.observer,
            served_below_min_isr=(DescribeQueue,),
            transactional=QueueTransactions(),
        )
        options = CoordinatorOptions(rewrite_records_min=40)
        self.coordinators = Coordinators(NODE, self.runtime, self, self, spec, options)
        self.lead(QUEUES_TOPIC, TOPIC_ID, 1, epoch)
        self.coordinators.on_metadata(replay(self.image, topic_facts(QUEUES_TOPIC, TOPIC_ID, 1)))
        self.settle()

    def restarted(self, epoch: int = 1) -> "QueueBench":
        """A node that starts from what this one left on its disk."""
        return QueueBench(self.crashable.copy(), epoch)

    @property
    def coordinator(self) -> Coordinator[QueueCoordinator, QueueCommand, QueueFact]:
        return next(iter(self.coordinators))

    def submit(self, command: type[Any], **fields: Any) -> list[QueueReply]:
        replies: list[QueueReply] = []
        self.coordinator.submit(command(on_reply=replies.append, queue=QUEUE, **fields))
        return replies

    def ask(self, command: type[Any], **fields: Any) -> QueueReply:
        replies = self.submit(command, **fields)
        self.settle()
        (reply,) = replies
        return reply

    def open(self, records: int) -> "QueueBench":
        offsets = {"log_start": Offset(0), "log_end": Offset(records), "start": Offset(0)}
        self.ask(OpenQueue, leader_epoch=EPOCH, settings=QueueSettings(), **offsets)
        run = Run(Offset(0), Offset(records))
        self.ask(OfferRecords, leader_epoch=EPOCH, start=run.start, end=run.end, plain=(run,))
        return self

    def acquire(self, token: int, records_max: int = 2) -> list[LeaseClaim]:
        fields = {"leader_epoch": EPOCH, "consumer": "c1", "records_max": records_max, "token": token}
        reply = self.ask(AcquireRecords, **fields)
        assert isinstance(reply, RecordsAcquired), reply
        return [LeaseClaim(record.offset, record.attempt, token) for record in reply.records]

    def end_transaction(self, producer_id: int, control_type: ControlType) -> None:
        marker = ControlRecord(0, self.timers.wall(), control_type, producer_id, 0, 0)
        append = partial(append_marker, self.coordinator.partition, marker, self.timers.wall())
        assert isinstance(self.coordinator.end_transaction(append, marker), int)
        self.settle()

    def acknowledge(self, *claims: LeaseClaim, **fields: Any) -> list[ErrorKind | None]:
        reply = self.ask(AcknowledgeRecords, claims=claims, **fields)
        assert isinstance(reply, ClaimResults), reply
        return list(reply.errors)

    def describe(self) -> QueueDescription:
        reply = self.ask(DescribeQueue)
        assert isinstance(reply, QueueDescription), reply
        return reply


def test_nothing_is_delivered_before_its_lease_is_on_disk() -> None:
    bench = QueueBench().open(records=3)
    bench.syncs.held = True

    fields = {"leader_epoch": EPOCH, "consumer": "c1", "records_max": 2, "token": 7}
    replies = bench.submit(AcquireRecords, **fields)
    bench.settle()
    before = list(replies)
    bench.syncs.finish()

    assert before == []
    assert [len(reply.records) for reply in replies if isinstance(reply, RecordsAcquired)] == [2]


def test_leases_survive_a_restart_and_end_in_full() -> None:
    bench = QueueBench().open(records=4)
    kept, lost = bench.acquire(token=7)
    bench.timers.pass_ms(LEASE_MS - 1)

    bench = bench.restarted()

    assert bench.describe().leased == 2
    assert [claim.offset for claim in bench.acquire(token=8)] == [2, 3]
    assert bench.acknowledge(kept) == [None]
    bench.timers.pass_ms(LEASE_MS - 1)
    bench.settle()
    assert bench.acknowledge(LeaseClaim(lost.offset, 1, 99)) == [ErrorKind.INVALID_RECORD_STATE]
    assert bench.acquire(token=9) == []
    bench.timers.pass_ms(1)
    bench.settle()
    assert LeasesExpired(QUEUE, 3) in bench.observer.events
    assert bench.acquire(token=10)[0] == LeaseClaim(lost.offset, 2, 10)


def test_a_lease_that_an_aborted_transaction_gives_back_ends_without_further_commands() -> None:
    bench = QueueBench().open(records=1)
    (claim,) = bench.acquire(token=7)
    assert bench.acknowledge(claim, producer=producer(5)) == [None]
    bench = bench.restarted()
    assert bench.describe().leased == 1
    bench.timers.pass_ms(2 * LEASE_MS)
    bench.settle()
    assert bench.observer.events == []

    bench.end_transaction(5, ControlType.ABORT)
    bench.timers.pass_ms(LEASE_MS - 1)
    bench.settle()
    assert bench.observer.events == []
    bench.timers.pass_ms(1)
    bench.settle()

    assert LeasesExpired(QUEUE, 1) in bench.observer.events


def test_an_acknowledgement_in_a_transaction_counts_after_the_marker_and_a_restart() -> None:
    bench = QueueBench().open(records=1)
    (claim,) = bench.acquire(token=7)
    bench.acknowledge(claim, producer=producer(5))
    bench.end_transaction(5, ControlType.COMMIT)

    for each in (bench, bench.restarted()):
        assert each.describe().finished_below == 1


def test_the_log_is_rewritten_and_says_the_same() -> None:
    bench = QueueBench().open(records=200)
    held = bench.acquire(token=1)
    for token in range(2, 60):
        bench.acknowledge(*bench.acquire(token))

    log = bench.coordinator.partition.log
    assert log.start > 0
    again = bench.restarted()

    assert image_of(again.coordinator.machine) == image_of(bench.coordinator.machine)
    assert again.acknowledge(*held) == [None, None]
    assert again.observer.load_failures == 0
