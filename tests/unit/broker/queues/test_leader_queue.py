"""A queue at the leader of its data partition, whose coordinator is the test."""

from typing import Any, TypeVar
from uuid import UUID

import pytest

from penstock.broker.list_offsets import UNSURE
from penstock.broker.queues.leader_queue import IDLE_MS, RETRY_MS, LeaderQueue, LeaderQueueContext
from penstock.broker.queues.peers import ReceivedRecords, ReceiveRequest
from penstock.broker.queues.record_reader import RecordReader
from penstock.core.model import ApiError, ErrorKind, LeaderEpoch, Offset, PartitionIndex, TopicId
from penstock.core.queues import (
    AcknowledgeRecords,
    AcquireRecords,
    ClaimResults,
    Demand,
    LeasedRun,
    OfferRecords,
    OpenQueue,
    QueueCommand,
    QueueId,
    QueueOpened,
    QueueReply,
    QueueSettings,
    RecordsAccepted,
    RecordsAcquired,
    ReleaseRecords,
    ReturnRecords,
    Run,
)
from penstock.core.records import Record, read_header, write_batch
from tests.unit.broker.coordinator.leader_bench import LeaderBench

TOPIC, TOPIC_ID = "orders", TopicId(UUID(int=70))
QUEUE = QueueId("workers", TOPIC_ID, PartitionIndex(0))
EPOCH = LeaderEpoch(3)
C = TypeVar("C")


class QueueLeaderBench(LeaderBench):
    """A led partition with records, and the commands that its queue sends."""

    def __init__(self, *values: str) -> None:
        super().__init__()
        self.lead(TOPIC, TOPIC_ID, 1, EPOCH)
        self.partition = self.led[TOPIC, 0]
        self.commands: list[QueueCommand] = []
        self.closed: list[LeaderQueue] = []
        self.reader = RecordReader(self.runtime)
        context = LeaderQueueContext(self, self.reader, self.runtime, self.closed.append)
        self.append(*values)
        self.queue = LeaderQueue(QUEUE, self.partition, QueueSettings(), context)

    def append(self, *values: str) -> None:
        if values:
            records = [Record(0, self.timers.wall(), None, value.encode()) for value in values]
            batch = write_batch(records)
            self.partition.append(batch, (read_header(batch),), self.timers.wall())
        self.settle()

    def submit(self, command: QueueCommand) -> None:
        self.commands.append(command)

    def receive(self, wait_ms: int = 0) -> list[Any]:
        replies: list[Any] = []
        request = ReceiveRequest(queue=QUEUE, consumer="c1", records_max=10, wait_ms=wait_ms)
        self.queue.receive(request, replies.append)
        self.settle()
        return replies

    def take(self, kind: type[C]) -> C:
        """The next command, which is of this kind."""
        command = self.commands.pop(0)
        assert isinstance(command, kind), command
        return command

    def reply(self, kind: type[Any], reply: QueueReply) -> Any:
        command = self.take(kind)
        command.on_reply(reply)
        self.settle()
        return command

    def open(self, wait_ms: int = 0) -> list[Any]:
        """A consumer whose request has come as far as the lease."""
        replies = self.receive(wait_ms)
        self.reply(OpenQueue, QueueOpened(Demand(Offset(0), 100)))
        if self.partition.log.end:
            self.reply(OfferRecords, RecordsAccepted(Demand(self.partition.log.end, 0)))
        return replies


def acquired(*leased: tuple[int, int]) -> RecordsAcquired:
    records = tuple(LeasedRun(Offset(offset), Offset(offset + 1), attempt) for offset, attempt in leased)
    return RecordsAcquired(7, 30_000, records, Demand(Offset(2), 0))


def test_a_queue_is_opened_offered_and_asked_under_the_leader_epoch() -> None:
    bench = QueueLeaderBench("a", "b")

    replies = bench.receive()
    opening = bench.reply(OpenQueue, QueueOpened(Demand(Offset(0), 100)))
    offer = bench.reply(OfferRecords, RecordsAccepted(Demand(Offset(2), 0)))
    asked = bench.reply(AcquireRecords, acquired((1, 2), (0, 1)))

    assert (opening.leader_epoch, opening.log_start, opening.log_end) == (EPOCH, 0, 2)
    assert opening.epochs == ((EPOCH, 0),)
    assert (offer.leader_epoch, offer.start, offer.end, offer.plain) == (
        EPOCH,
        0,
        2,
        (Run(Offset(0), Offset(2)),),
    )
    assert (asked.leader_epoch, asked.consumer, asked.records_max) == (EPOCH, "c1", 10)
    ((received,),) = (replies,)
    assert [(each.record.value, each.attempt) for each in received.records] == [(b"b", 2), (b"a", 1)]


def test_no_more_is_offered_than_the_queue_wants() -> None:
    bench = QueueLeaderBench("a", "b", "c")
    bench.receive()
    bench.reply(OpenQueue, QueueOpened(Demand(Offset(0), 2)))

    offer = bench.reply(OfferRecords, RecordsAccepted(Demand(Offset(2), 0)))

    assert (offer.end, offer.plain) == (2, (Run(Offset(0), Offset(2)),))
    bench.take(AcquireRecords)
    assert bench.commands == []


def test_a_queue_that_was_opened_again_is_not_offered_what_was_read_for_its_old_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = QueueLeaderBench("a", "b", "c", "d")
    read, under_way = bench.reader.read, list[Any]()
    monkeypatch.setattr(bench.reader, "read", lambda *asked: under_way.append(asked))
    bench.receive()
    bench.reply(OpenQueue, QueueOpened(Demand(Offset(2), 100)))
    bench.queue.change_settings(QueueSettings(lease_ms=1_000))
    bench.reply(OpenQueue, QueueOpened(Demand(Offset(0), 100)))
    assert [offset for _, offset, _ in under_way] == [2]

    read(*under_way.pop())
    bench.settle()
    assert [offset for _, offset, _ in under_way] == [0]
    assert not any(isinstance(command, OfferRecords) for command in bench.commands)
    read(*under_way.pop())
    bench.settle()

    (offer,) = (command for command in bench.commands if isinstance(command, OfferRecords))
    assert (offer.start, offer.end, offer.plain) == (0, 4, (Run(Offset(0), Offset(4)),))


def test_a_leader_that_was_replaced_tells_its_consumers_to_look_elsewhere() -> None:
    bench = QueueLeaderBench("a")
    replies = bench.open(wait_ms=10_000)
    waiting = bench.receive(wait_ms=10_000)
    for _ in range(2):
        bench.reply(AcquireRecords, ApiError(ErrorKind.FENCED_LEADER_EPOCH))
        if not bench.commands:
            break

    assert [reply.kind for reply in (*replies, *waiting)] == [ErrorKind.NOT_LEADER] * 2
    assert bench.closed == [bench.queue]
    assert [reply.kind for reply in bench.receive()] == [ErrorKind.NOT_LEADER]


def test_a_coordinator_that_does_not_know_the_queue_gets_it_again() -> None:
    bench = QueueLeaderBench("a")
    replies = bench.open(wait_ms=10_000)
    bench.reply(AcquireRecords, ApiError(ErrorKind.UNKNOWN_GROUP))
    bench.timers.pass_ms(RETRY_MS)
    bench.settle()

    bench.reply(OpenQueue, QueueOpened(Demand(Offset(0), 100)))
    bench.reply(OfferRecords, RecordsAccepted(Demand(Offset(1), 0)))
    bench.reply(AcquireRecords, acquired((0, 1)))

    assert [len(reply.records) for reply in replies] == [1]


def test_while_the_coordinator_moves_consumers_wait_and_get_its_error_in_the_end() -> None:
    bench = QueueLeaderBench("a")
    replies = bench.open(wait_ms=1_000)
    error = ApiError(ErrorKind.COORDINATOR_LOADING)
    while not replies and bench.timers.instant < 20_000_000_000:
        if bench.commands:
            bench.reply(AcquireRecords, error)
        bench.timers.pass_ms(RETRY_MS)
        bench.settle()

    assert replies == [error]


def test_a_record_that_the_log_has_lost_since_is_finished_and_another_asked_for() -> None:
    bench = QueueLeaderBench("a", "b")
    replies = bench.open(wait_ms=10_000)
    bench.partition.log.delete_records(Offset(1))

    bench.reply(AcquireRecords, acquired((0, 1)))

    acknowledged = bench.reply(AcknowledgeRecords, ClaimResults((None,)))
    assert [tuple(claim) for claim in acknowledged.claims] == [(0, 1, 7, 1)]
    bench.reply(AcquireRecords, acquired((1, 1)))
    assert [[each.record.offset for each in reply.records] for reply in replies] == [[1]]


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (ApiError(ErrorKind.OFFSET_NOT_AVAILABLE), ReturnRecords),
        (ApiError(ErrorKind.NOT_LEADER), ReturnRecords),
        (UNSURE, ReturnRecords),
        (ApiError(ErrorKind.DAMAGED_LOG), ReleaseRecords),
        (ApiError(ErrorKind.STORAGE_FAILED), ReleaseRecords),
    ],
)
def test_a_delivery_fails_if_the_log_is_damaged_and_not_if_the_leader_cannot_read_it_yet(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, command: type[Any]
) -> None:
    bench = QueueLeaderBench("a")
    replies = bench.open()
    monkeypatch.setattr(bench.queue._cache, "find", lambda _log, _offset: None)
    monkeypatch.setattr(bench.reader, "collect", lambda _partition, _offsets, _on_read, done: done(error))

    bench.reply(AcquireRecords, acquired((0, 1)))

    assert replies == [error]
    given_back = bench.take(command)
    assert [tuple(claim) for claim in given_back.claims] == [(0, 1, 7, 1)]


def test_a_queue_without_consumers_is_closed_after_a_while() -> None:
    bench = QueueLeaderBench()
    replies = bench.open()
    bench.reply(AcquireRecords, acquired())
    assert replies == [ReceivedRecords(QUEUE, lease_ms=30_000)]
    bench.timers.pass_ms(IDLE_MS)
    assert bench.closed == []

    bench.timers.pass_ms(2_000)

    assert bench.closed == [bench.queue]
    assert bench.partition.watchers == 0


def test_a_partition_that_is_taken_away_ends_the_wait_of_its_consumers() -> None:
    bench = QueueLeaderBench()
    replies = bench.open(wait_ms=10_000)
    bench.reply(AcquireRecords, acquired())

    bench.partition.stop("another node leads", wanted=True)
    bench.settle()

    assert [reply.kind for reply in replies] == [ErrorKind.NOT_LEADER]
    assert bench.closed == [bench.queue]
