"""Transactions on the log of their coordinator: when markers are sent, and what a successor goes on with."""

import errno
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.coordinator import transactions
from penstock.broker.coordinator.runtime import START_OVER_MS
from penstock.broker.coordinator.transactions import (
    TransactionPorts,
    TransactionService,
    TransactionServiceOptions,
)
from penstock.broker.lease import FOREVER
from penstock.broker.producer_ids import OnProducerId
from penstock.broker.transactions.markers import TransactionMarker
from penstock.core.groups.topic_patterns import PatternSteps, TopicPattern
from penstock.core.metadata import TRANSACTIONS_TOPIC, FeatureLevelSet, replay
from penstock.core.metadata.levels import METADATA_VERSION, TRANSACTIONS_LEVEL
from penstock.core.model import ApiError, ErrorKind, Instant, NodeId, ProducerId, TopicId, TopicPartition
from penstock.core.transactions import (
    AddPartitions,
    BatchDone,
    BatchMember,
    CommitBatch,
    DescribedTransaction,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListedTransactions,
    ProducerGranted,
    ProducerIdentity,
    Reply,
    TransactionOptions,
    TransactionState,
)
from penstock.storage.disk import CrashableDisk, FailureRule
from tests.unit.broker.coordinator.leader_bench import NODE, LeaderBench, topic_facts
from tests.unit.core.transactions.transaction_driver import at

STATE_ID = TopicId(UUID(int=60))
ID = "payments"
S = TransactionState


class TransactionsBench(LeaderBench):
    """One node that leads the transaction topic; its markers wait until the test takes them."""

    def __init__(self, disk: CrashableDisk | None = None, *, level: int = TRANSACTIONS_LEVEL) -> None:
        super().__init__(disk)
        self.level = level
        self.next_id = 1_000
        self.sent: list[tuple[TransactionMarker, Callable[[], bool], Callable[[bool], None]]] = []
        ports = TransactionPorts(self._next_id, self)
        self.metrics = ports.metrics
        self.transactions = TransactionService(
            NODE,
            self.runtime,
            self,
            self,
            ports,
            TransactionServiceOptions(TransactionOptions(timeout_ms_max=60_000)),
        )

    def send(
        self, marker: TransactionMarker, is_current: Callable[[], bool], done: Callable[[bool], None]
    ) -> None:
        self.sent.append((marker, is_current, done))

    def _next_id(self, given: OnProducerId) -> None:
        self.next_id += 1
        given(ProducerId(self.next_id - 1))

    def start(self, epoch: int = 0, partitions: int = 1) -> "TransactionsBench":
        self.lead(TRANSACTIONS_TOPIC, STATE_ID, partitions, epoch)
        facts = topic_facts(TRANSACTIONS_TOPIC, STATE_ID, partitions)
        self.image = replay(self.image, [FeatureLevelSet(METADATA_VERSION, self.level), *facts])
        self.transactions.on_metadata(self.image)
        self.settle()
        return self

    def restarted(self, epoch: int = 1) -> "TransactionsBench":
        return TransactionsBench(self.crashable.copy()).start(epoch)

    def submit(self, command: type[Any], **fields: Any) -> list[Reply]:
        replies: list[Reply] = []
        self.transactions.submit(command(on_reply=replies.append, **fields))
        self.settle()
        return replies

    def ask(self, command: type[Any], **fields: Any) -> Reply:
        (reply,) = self.submit(command, **{"transactional_id": ID, **fields})
        return reply

    def begin(self, transactional_id: str = ID) -> ProducerIdentity:
        reply = self.ask(InitProducer, transactional_id=transactional_id, timeout_ms=10_000)
        assert isinstance(reply, ProducerGranted), reply
        self.ask(
            AddPartitions,
            transactional_id=transactional_id,
            producer=reply.producer,
            partitions=(at("t"), at("t", 1)),
            client_version=2,
        )
        return reply.producer

    def end(self, producer: ProducerIdentity) -> Reply:
        return self.ask(EndTransaction, producer=producer, is_commit=True, client_version=2)

    def state(self, transactional_id: str = ID) -> TransactionState:
        reply = self.ask(DescribeTransaction, transactional_id=transactional_id)
        assert isinstance(reply, DescribedTransaction), reply
        return reply.transaction.state


@pytest.fixture
def bench() -> TransactionsBench:
    return TransactionsBench().start(epoch=4)


def kind(reply: Reply) -> ErrorKind | None:
    return reply.kind if isinstance(reply, ApiError) else None


def test_a_transaction_is_complete_when_its_markers_are_written(bench: TransactionsBench) -> None:
    producer = bench.begin()
    assert bench.sent == []

    assert isinstance(bench.end(producer), ProducerGranted)

    ((marker, is_current, done),) = bench.sent
    assert marker == TransactionMarker(1_000, 1, 4, True, 2, (at("t"), at("t", 1)))
    assert is_current()
    assert bench.state() is S.PREPARE_COMMIT
    done(True)
    bench.settle()
    assert bench.state() is S.COMPLETE_COMMIT
    assert bench.metrics.ended.of("committed").count == 1


def test_no_marker_is_sent_before_the_outcome_is_committed(bench: TransactionsBench) -> None:
    producer = bench.begin()
    bench.syncs.held = True

    replies = bench.submit(EndTransaction, transactional_id=ID, producer=producer, is_commit=True)

    assert (replies, bench.sent) == ([], [])
    bench.syncs.held = False
    bench.settle()
    assert (len(replies), len(bench.sent)) == (1, 1)


def test_the_partitions_of_an_open_transaction_are_confirmed_without_a_wait(bench: TransactionsBench) -> None:
    producer = bench.begin()

    def confirms(partition: TopicPartition, epoch: int = producer.epoch, who: str = ID) -> bool:
        return bench.transactions.confirms_now(who, producer.producer_id, epoch, partition)

    assert confirms(at("t"))
    assert confirms(at("t", 1))
    assert not confirms(at("t", 2))
    assert not confirms(at("t"), epoch=producer.epoch + 1)
    assert not confirms(at("t"), who="others")
    bench.end(producer)
    assert not confirms(at("t"))


def test_a_partition_is_not_confirmed_while_the_log_has_something_that_is_not_committed(
    bench: TransactionsBench,
) -> None:
    reply = bench.ask(InitProducer, timeout_ms=10_000)
    assert isinstance(reply, ProducerGranted)
    producer = reply.producer
    bench.syncs.held = True
    bench.submit(
        AddPartitions, transactional_id=ID, producer=producer, partitions=(at("t"),), client_version=2
    )

    def is_confirmed() -> bool:
        return bench.transactions.confirms_now(ID, producer.producer_id, producer.epoch, at("t"))

    assert not is_confirmed()
    bench.syncs.held = False
    bench.settle()
    assert is_confirmed()


def test_a_partition_is_not_confirmed_without_a_lease_nor_by_a_coordinator_that_was_given_up(
    bench: TransactionsBench,
) -> None:
    producer = bench.begin()

    def is_confirmed() -> bool:
        return bench.transactions.confirms_now(ID, producer.producer_id, producer.epoch, at("t"))

    assert is_confirmed()
    until, bench.lease.until = bench.lease.until, bench.runtime.clock.now()
    assert not is_confirmed()
    bench.lease.until = until
    assert is_confirmed()
    bench.transactions.stop()
    assert not is_confirmed()


def test_a_partition_is_not_confirmed_while_the_log_is_read_again(bench: TransactionsBench) -> None:
    producer = bench.begin()
    bench.disk.fail(FailureRule("append", errno.ENOSPC))
    bench.ask(AddPartitions, producer=producer, partitions=(at("u"),), client_version=2)

    def is_confirmed() -> bool:
        return bench.transactions.confirms_now(ID, producer.producer_id, producer.epoch, at("t"))

    assert not is_confirmed()
    bench.timers.pass_ms(START_OVER_MS)
    bench.settle()
    assert is_confirmed()


def test_among_very_many_partitions_none_is_looked_for(bench: TransactionsBench) -> None:
    producer = bench.begin()
    many = tuple(at("many", index) for index in range(200))

    bench.ask(AddPartitions, producer=producer, partitions=many, client_version=2)

    assert not bench.transactions.confirms_now(ID, producer.producer_id, producer.epoch, many[0])


def test_a_successor_sends_the_markers_of_what_is_prepared(bench: TransactionsBench) -> None:
    bench.end(bench.begin())

    successor = bench.restarted(epoch=5)

    ((marker, _, done),) = successor.sent
    assert (marker.coordinator_epoch, marker.producer_epoch) == (5, 1)
    done(True)
    successor.settle()
    assert successor.state() is S.COMPLETE_COMMIT
    assert successor.restarted().sent == []


def test_a_coordinator_that_was_given_up_completes_nothing(bench: TransactionsBench) -> None:
    bench.end(bench.begin())
    ((_, is_current, done),) = bench.sent

    bench.transactions.stop()
    bench.settle()

    assert not is_current()
    done(False)
    done(True)
    bench.settle()
    assert bench.restarted().sent != []


def test_markers_that_were_given_up_are_sent_again_while_the_coordinator_is_here(
    bench: TransactionsBench,
) -> None:
    bench.end(bench.begin())
    ((_, _, done),) = bench.sent

    done(False)
    bench.timers.pass_ms(1_000)
    bench.settle()

    assert bench.state() is S.PREPARE_COMMIT
    assert [marker.producer_id for marker, _, _ in bench.sent] == [1_000, 1_000]
    bench.sent[1][2](True)
    bench.settle()
    assert bench.state() is S.COMPLETE_COMMIT


def test_a_transaction_is_not_completed_while_its_markers_are_sent_once_more(
    bench: TransactionsBench,
) -> None:
    bench.end(bench.begin())
    ((_, _, done),) = bench.sent
    # Without the lease nothing is completed; then the log is read again, and markers are sent for what is
    # prepared in it.
    bench.lease.until = Instant(0)
    done(True)
    bench.timers.pass_ms(11_000)
    bench.lease.until = FOREVER
    bench.timers.pass_ms(1_000)
    bench.settle()

    assert len(bench.sent) == 2
    assert bench.state() is S.PREPARE_COMMIT
    bench.sent[1][2](True)
    bench.settle()
    assert bench.state() is S.COMPLETE_COMMIT


def test_a_transaction_that_takes_too_long_is_ended_without_being_asked(bench: TransactionsBench) -> None:
    bench.begin()

    bench.timers.pass_ms(11_000)
    bench.settle()

    ((marker, _, _),) = bench.sent
    assert (marker.is_commit, marker.producer_epoch) == (False, 1)
    assert bench.metrics.timeouts.of().count == 1


def test_ids_of_one_sink_are_coordinated_together(bench: TransactionsBench) -> None:
    members = [BatchMember(f"sink#{task}", *bench.begin(f"sink#{task}")) for task in range(3)]

    replies = bench.submit(CommitBatch, sink="sink", batch="1", members=tuple(members))

    assert replies == [BatchDone(is_repeat=False)]
    assert len(bench.sent) == 3
    for _, _, done in bench.sent:
        done(True)
    bench.settle()
    assert [bench.state(f"sink#{task}") for task in range(3)] == [S.COMPLETE_COMMIT] * 3
    assert bench.restarted().submit(CommitBatch, sink="sink", batch="1", members=()) == [
        BatchDone(is_repeat=True)
    ]


def test_a_batch_that_is_prepared_goes_on_at_a_successor(bench: TransactionsBench) -> None:
    members = [BatchMember(f"sink#{task}", *bench.begin(f"sink#{task}")) for task in range(3)]
    bench.submit(CommitBatch, sink="sink", batch="1", members=tuple(members))

    successor = bench.restarted()

    assert [marker.is_commit for marker, _, _ in successor.sent] == [True] * 3


def test_ids_are_listed_in_order(bench: TransactionsBench) -> None:
    for transactional_id in ("b", "a"):
        bench.begin(transactional_id)
    found: list[ListedTransactions | ApiError] = []

    bench.transactions.list_transactions((S.ONGOING,), (), -1, None, found.append)
    bench.transactions.list_transactions((), (), -1, "b|c", found.append)
    bench.settle()

    listings = [each.transactions for each in found if isinstance(each, ListedTransactions)]
    assert [[each.transactional_id for each in rows] for rows in listings] == [["a", "b"], ["b"]]


def test_a_listing_has_a_bounded_number_of_ids(
    bench: TransactionsBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LISTED_MAX", 2)
    for transactional_id in ("a", "b", "c"):
        bench.begin(transactional_id)
    found: list[ListedTransactions | ApiError] = []

    for pattern in (None, "a|b"):
        bench.transactions.list_transactions((), (), -1, pattern, found.append)
        bench.settle()

    everything, some = found
    assert isinstance(everything, ApiError)
    assert everything.kind is ErrorKind.INVALID_REQUEST
    assert isinstance(some, ListedTransactions)
    assert len(some.transactions) == 2


def test_coordinators_are_asked_for_their_ids_in_turns_of_their_own() -> None:
    bench = TransactionsBench().start(partitions=3)
    asked: list[int] = []
    for number, coordinator in enumerate(bench.transactions):
        submit = coordinator.submit

        def note(command: Any, number: int = number, submit: Callable[[Any], None] = submit) -> None:
            asked.append(number)
            submit(command)

        coordinator.submit = note  # type: ignore[method-assign]

    bench.transactions.list_transactions((), (), -1, None, lambda _: None)

    assert asked == [0]
    bench.settle()
    assert asked == [0, 1, 2]


def test_ids_are_compared_with_a_pattern_one_coordinator_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[list[str]] = []

    class NotingPattern(TopicPattern):
        def search(self, names: Sequence[str]) -> PatternSteps:
            searched.append(list(names))
            return super().search(names)

    monkeypatch.setattr(transactions, "TopicPattern", NotingPattern)
    bench = TransactionsBench().start(partitions=2)
    for transactional_id in ("a", "b", "c", "d"):
        bench.begin(transactional_id)
    found: list[ListedTransactions | ApiError] = []

    bench.transactions.list_transactions((), (), -1, "a|b|d", found.append)
    bench.settle()

    (listing,) = found
    assert isinstance(listing, ListedTransactions)
    assert [each.transactional_id for each in listing.transactions] == ["a", "b", "d"]
    assert sorted(searched) == [["a", "c"], ["b", "d"]]


def test_an_id_of_unreasonable_length_is_refused(bench: TransactionsBench) -> None:
    for bad in ("", "x" * 8_001):
        reply = bench.ask(InitProducer, transactional_id=bad, timeout_ms=10)
        assert kind(reply) is ErrorKind.INVALID_REQUEST


def test_below_the_level_of_transactions_nobody_coordinates() -> None:
    bench = TransactionsBench(level=TRANSACTIONS_LEVEL - 1).start()
    found: list[NodeId | ApiError] = []

    bench.transactions.locate(ID, found.append)

    (error,) = found
    assert isinstance(error, ApiError)
    assert "penstock cluster upgrade" in error.detail
    assert kind(bench.ask(InitProducer, timeout_ms=10)) is ErrorKind.COORDINATOR_NOT_AVAILABLE
