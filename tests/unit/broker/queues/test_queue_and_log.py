"""What of a partition's log a queue delivers, and acknowledgements that are part of a transaction."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.coordinator.queues import FORGET_MS
from penstock.broker.produce import ALL_ACKS, PendingProduce
from penstock.broker.queues.record_reader import RecordReader, committed_records
from penstock.broker.transactions.verification import TransactionalRequest
from penstock.broker.worker_share import LIGHT_BYTES, WorkersBusy, WorkerShare
from penstock.core.model import ApiError, ErrorKind, Offset, PenstockError
from penstock.core.queues import AcknowledgeRecords, DescribeQueue, TransactionProducer
from penstock.core.records import CompressionType, Record, RecordsTooLarge, read_header, write_batch
from penstock.core.records.batch import seal
from penstock.core.records.compression import LIMIT_BYTES
from penstock.core.records.record import assemble
from penstock.core.transactions import EndTransaction, InitProducer, ProducerGranted, ProducerIdentity
from penstock.runtime import ExecutorFull, WorkerDied
from tests.support.recorded_events import recorded_events
from tests.unit.broker.queues.queue_stage import TOPIC, QueueConsumer, QueueStage, consumer_of, values

ID = "payments"
STALE = ErrorKind.INVALID_RECORD_STATE


class Producer:
    """A transactional producer on the node's services."""

    def __init__(self, stage: QueueStage) -> None:
        self.stage = stage
        reply = self._ask(InitProducer, timeout_ms=30_000)
        assert isinstance(reply, ProducerGranted), reply
        self.identity: ProducerIdentity = reply.producer

    def _ask(self, command: type[Any], **fields: Any) -> Any:
        transactions = self.stage.at(1).transactions

        def ask(done: Callable[[Any], None]) -> None:
            transactions.submit(command(on_reply=done, transactional_id=ID, **fields))

        for _ in range(100):
            reply = self.stage.ask(ask)
            if not isinstance(reply, ApiError):
                break
            self.stage.pass_ms(100)
        return reply

    def write(self, *sent: str) -> None:
        backend, partition = self.stage.at(1), self.stage.led(TOPIC)
        clock = self.stage.nodes[1].services._runtime.clock
        producer_id, epoch = self.identity
        batch = write_batch(
            [Record(0, clock.wall(), None, value.encode()) for value in sent],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )

        def ask(done: Callable[[Any], None]) -> None:
            request = PendingProduce(ALL_ACKS, 10_000, clock.now(), done, lambda: None, lambda: None)
            request.transaction = TransactionalRequest(ID, True, True)
            backend.produce_service.produce(request, [(partition, memoryview(batch))])

        (result,) = self.stage.ask(ask)
        assert not isinstance(result, ApiError), result

    def end(self, *, is_commit: bool) -> None:
        reply = self._ask(EndTransaction, producer=self.identity, is_commit=is_commit, client_version=2)
        assert isinstance(reply, ProducerGranted), reply
        self.identity = reply.producer

    @property
    def fields(self) -> dict[str, Any]:
        return {"transactional_id": ID, "producer": TransactionProducer(*self.identity)}


@pytest.fixture
def consumer() -> QueueConsumer:
    return consumer_of(QueueStage())


def test_records_of_transactions_are_delivered_when_they_are_committed(consumer: QueueConsumer) -> None:
    stage = consumer.stage
    producer = Producer(stage)
    producer.write("aborted")
    producer.end(is_commit=False)
    stage.produce("plain")
    producer.write("committed")
    stage.produce("behind")
    stage.pass_ms(500)

    before = consumer.receive(wait_ms=500)
    producer.end(is_commit=True)
    after = consumer.receive(wait_ms=2_000)

    assert (values(before), values(after)) == (["plain"], ["committed", "behind"])
    assert consumer.settle([*before, *after]) == [None] * 3
    described = consumer.describe()
    assert described.finished_below == described.stored.end


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_acknowledgement_in_a_transaction_counts_if_that_is_committed(
    consumer: QueueConsumer, is_commit: bool
) -> None:
    stage = consumer.stage
    stage.produce("a")
    received = consumer.receive()
    producer = Producer(stage)

    assert consumer.settle(received, AcknowledgeRecords, **producer.fields) == [None]
    assert consumer.settle(received) == [ErrorKind.CONCURRENT_TRANSACTIONS]
    producer.end(is_commit=is_commit)
    stage.pass_ms(500)

    assert consumer.describe().finished_below == (1 if is_commit else 0)
    assert consumer.settle(received) == [STALE if is_commit else None]


def test_an_acknowledgement_in_a_transaction_that_the_coordinator_does_not_know_is_refused(
    consumer: QueueConsumer,
) -> None:
    consumer.stage.produce("a")
    received = consumer.receive()
    claims = {"claims": ()}
    producer = Producer(consumer.stage)
    fenced = TransactionProducer(producer.identity.producer_id, producer.identity.epoch)
    Producer(consumer.stage)

    reply = consumer.submit(AcknowledgeRecords, ID, producer=fenced, **claims)
    unnamed = consumer.submit(AcknowledgeRecords, None, producer=fenced, **claims)

    assert [each.kind for each in (reply, unnamed) if isinstance(each, ApiError)] == [
        ErrorKind.PRODUCER_FENCED,
        ErrorKind.INVALID_REQUEST,
    ]
    assert consumer.settle(received) == [None]


def test_what_was_deleted_from_the_log_is_not_delivered(consumer: QueueConsumer) -> None:
    stage = consumer.stage
    stage.produce("a", "b", "c")
    (held,) = consumer.receive(1)
    partition = stage.led(TOPIC)

    partition.log.delete_records(Offset(2))
    partition.log_start_moved()
    stage.pass_ms(100)

    assert values(consumer.receive()) == ["c"]
    assert consumer.settle([held]) == [STALE]
    assert consumer.describe().finished_below == 2


def test_a_new_queue_begins_at_the_start_of_the_log(consumer: QueueConsumer) -> None:
    stage = consumer.stage
    stage.produce("a", "b", "c")
    stage.led(TOPIC).log.delete_records(Offset(1))

    assert values(consumer.receive()) == ["b", "c"]


def test_queues_of_a_deleted_topic_are_forgotten_a_while_later(consumer: QueueConsumer) -> None:
    stage = consumer.stage
    stage.produce("a")
    consumer.receive()
    stage.ask(lambda done: stage.at(1).topics.delete([TOPIC], done))
    refused = list[Any]()
    consumer.request(refused)
    stage.pass_ms(FORGET_MS)
    assert consumer.describe().stored.queue == consumer.queue

    stage.pass_ms(FORGET_MS)

    assert [reply.kind for reply in refused] == [ErrorKind.UNKNOWN_PARTITION]
    reply = consumer.submit(DescribeQueue)
    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.UNKNOWN_GROUP


def unreadable(payload: bytes, codec: CompressionType = CompressionType.NONE) -> bytearray:
    """A batch of one record, as the log of an older version may hold it."""
    header = read_header(write_batch([Record(0, 1, None, b"")]))
    batch = assemble(header, payload)
    batch[22] = codec
    seal(batch, 0, len(batch))
    return batch


def store(stage: QueueStage, batch: bytearray) -> None:
    """Append as it is, past the checks of a Produce."""
    partition, clock = stage.led(TOPIC), stage.nodes[1].services._runtime.clock
    appended = partition.append(memoryview(batch), (read_header(batch),), clock.wall())
    stage.until(lambda: partition.high_watermark > appended[1])


@pytest.mark.parametrize(
    "batch",
    [
        unreadable(b"noise" * 20),
        unreadable(b""),
        unreadable(b"\x28\xb5\x2f\xfd" + bytes(60), CompressionType.ZSTD),
        write_batch([Record(0, 1, None, bytes(LIMIT_BYTES))], codec=CompressionType.ZSTD),
    ],
    ids=["noise", "nothing", "broken zstd", "more than anybody unpacks"],
)
def test_a_batch_that_nobody_can_decode_is_passed_over_and_named(
    consumer: QueueConsumer, batch: bytearray
) -> None:
    stage = consumer.stage
    stage.produce("before")
    store(stage, bytearray(batch))
    stage.produce("behind")

    with recorded_events() as events:
        received = consumer.receive(wait_ms=2_000) + consumer.receive(wait_ms=2_000)

    assert values(received) == ["before", "behind"]
    assert [event["offset"] for event in events.named("queue.batch_unreadable")] == [1]
    assert consumer.settle(received) == [None] * 2
    assert consumer.describe().finished_below == 3


@pytest.mark.parametrize("error", [WorkersBusy("busy"), ExecutorFull("full"), WorkerDied("killed")])
def test_a_worker_that_is_busy_or_gone_says_nothing_about_the_records(
    consumer: QueueConsumer, error: PenstockError, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = consumer.stage
    store(stage, write_batch([Record(0, 1, None, b"packed")], codec=CompressionType.ZSTD))

    def refuse(_: WorkerShare, client: Any, work: Any, done: Any, failed: Any, size: int) -> None:
        failed(error)

    monkeypatch.setattr(WorkerShare, "unpack", refuse)
    reader = RecordReader(stage.nodes[1].services._runtime)
    reply = stage.ask(lambda done: reader.read(stage.led(TOPIC), Offset(0), done))

    # Otherwise it would count as a failed delivery of each of them.
    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.COORDINATOR_NOT_AVAILABLE


def test_a_step_unpacks_no_more_than_it_should() -> None:
    batches = [
        write_batch([Record(0, 1, None, bytes(900_000))], codec=CompressionType.ZSTD, base_offset=number)
        for number in range(20)
    ]

    found = committed_records(b"".join(batches), Offset(0), (), LIGHT_BYTES)

    assert (len(found.batches), found.end) == (2, 2)


def test_a_quick_step_ends_before_a_batch_that_takes_long() -> None:
    small = write_batch([Record(0, 1, None, b"v")])
    large = write_batch(
        [Record(0, 1, None, bytes(2 * LIGHT_BYTES))], codec=CompressionType.ZSTD, base_offset=1
    )

    first = committed_records(bytes(small + large), Offset(0), (), LIGHT_BYTES)
    at_length = committed_records(bytes(large), Offset(1), ())

    with pytest.raises(RecordsTooLarge):
        committed_records(bytes(large), Offset(1), (), LIGHT_BYTES)
    assert (len(first.batches), first.end) == (1, 1)
    assert (at_length.end, at_length.unreadable) == (2, ())
