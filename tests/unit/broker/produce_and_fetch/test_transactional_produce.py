"""Transactional batches: verified by their coordinator first, ended by markers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from penstock.broker.fetch import FetchLimits, FetchPartition
from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult, PendingAppend, ProduceService
from penstock.broker.transactions import verification
from penstock.broker.transactions.late_transactions import LateTransactionMetrics, LateTransactions
from penstock.broker.transactions.markers import MarkerResults, MarkerWriter, TransactionMarker
from penstock.broker.transactions.verification import TransactionalRequest, TransactionVerification
from penstock.broker.worker_share import WorkerShare
from penstock.core.model import SECOND, ApiError, ErrorKind, StorageError, TopicPartition
from penstock.core.records import Record, write_batch
from tests.support.recorded_events import recorded_events
from tests.unit.broker.produce_and_fetch.conftest import Bench

Answer = Mapping[TopicPartition, ApiError | None]
ALICE = 7
OLD = TransactionalRequest("payments", adds_partitions=False, knows_abortable=False)
ABORTABLE = TransactionalRequest("payments", adds_partitions=False, knows_abortable=True)
NEW = TransactionalRequest("payments", adds_partitions=True, knows_abortable=True)


class Question(NamedTuple):
    """What a leader has asked the coordinator."""

    partitions: list[TopicPartition]
    verify_only: bool
    epoch: int
    done: Callable[[Answer], None]

    def answer(self, kind: ErrorKind | None = None) -> None:
        self.done(dict.fromkeys(self.partitions, None if kind is None else ApiError(kind)))


class Coordinator:
    """Keeps the questions; a test answers them."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        # Partitions of a transaction that is coordinated on the same node.
        self.known_here: list[TopicPartition] = []

    def confirms_now(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        known = (transactional_id, producer_id, producer_epoch) == ("payments", ALICE, 0)
        return known and partition in self.known_here

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: Callable[[Answer], None],
    ) -> None:
        assert producer_id == ALICE, transactional_id
        self.questions.append(Question(list(partitions), verify_only, producer_epoch, done))


class Leader:
    """A leader of partitions, with a coordinator that a test speaks for."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.coordinator = Coordinator()
        verification = TransactionVerification(bench.runtime.timers, self.coordinator)
        partitions = bench.backend.partitions
        runtime = bench.runtime
        self.produce = ProduceService(
            partitions, runtime.clock, bench.produce_metrics, WorkerShare(runtime), verification
        )
        self.markers = MarkerWriter(partitions, runtime, verification, bench.backend.groups)

    def send(
        self,
        partition: LeaderPartition,
        sequence: int,
        *values: bytes,
        epoch: int = 0,
        request: TransactionalRequest | None = OLD,
        is_transactional: bool = True,
    ) -> list[AppendResult | ApiError]:
        """Fills with the result of one batch."""
        records = [Record(0, self.bench.wall_ms, b"key", value) for value in values or (b"value",)]
        batch = write_batch(
            records,
            producer_id=ALICE,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=is_transactional,
        )
        outcome = self.produce.append(partition, memoryview(batch), transaction=request)
        results: list[AppendResult | ApiError] = []
        if isinstance(outcome, PendingAppend):
            outcome.done = results.append
        else:
            results.append(outcome)
        self.bench.run()
        return results

    def end(
        self,
        *partitions: LeaderPartition,
        is_commit: bool = True,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        version: int = 0,
    ) -> list[ErrorKind | None]:
        """Write markers; returns the errors once they are committed."""
        heard: list[MarkerResults] = []
        names = tuple(partition.name for partition in partitions)
        marker = TransactionMarker(ALICE, epoch, coordinator_epoch, is_commit, version, names)
        self.markers.write([marker], heard.append)
        self.bench.run()
        ((result,),) = heard
        return [None if error is None else error.kind for error in result.values()]


@pytest.fixture
def leader(bench: Bench) -> Leader:
    return Leader(bench)


def kinds(results: Sequence[AppendResult | ApiError]) -> list[int | ErrorKind]:
    return [one.kind if isinstance(one, ApiError) else one.first_offset for one in results]


def begin(leader: Leader, partition: LeaderPartition, request: TransactionalRequest = OLD) -> None:
    """Open a transaction with one record."""
    results = leader.send(partition, 0, request=request)
    leader.coordinator.questions.pop().answer()
    leader.bench.run()
    assert isinstance(results[0], AppendResult)


def test_the_first_batch_of_a_transaction_waits_for_the_coordinator_and_the_next_ones_do_not(
    leader: Leader,
) -> None:
    orders = leader.bench.topic()

    first = leader.send(orders, 0)
    waiting = list(first)
    (question,) = leader.coordinator.questions
    question.answer()
    second = leader.send(orders, 1)

    assert waiting == []
    assert question.verify_only
    assert (kinds(first), kinds(second)) == ([0], [1])
    assert len(leader.coordinator.questions) == 1


def test_the_first_batch_does_not_wait_for_a_coordinator_on_the_same_node(leader: Leader) -> None:
    orders, bills = leader.bench.topic(), leader.bench.topic("bills")
    leader.coordinator.known_here = [orders.name]

    here, elsewhere = leader.send(orders, 0), leader.send(bills, 0)

    assert (kinds(here), elsewhere) == ([0], [])
    (question,) = leader.coordinator.questions
    assert question.partitions == [bills.name]


def test_a_coordinator_on_the_same_node_is_looked_at_again_after_the_marker(leader: Leader) -> None:
    orders = leader.bench.topic()
    leader.coordinator.known_here = [orders.name]
    leader.send(orders, 0)
    leader.end(orders)
    leader.coordinator.known_here = []

    delayed = leader.send(orders, 1)

    assert delayed == []
    leader.coordinator.questions.pop().answer(ErrorKind.INVALID_TRANSACTION)
    assert kinds(delayed) == [ErrorKind.INVALID_TRANSACTION]


def test_a_batch_does_not_overtake_those_that_wait_when_the_coordinator_comes_to_this_node(
    leader: Leader,
) -> None:
    orders = leader.bench.topic()
    first = leader.send(orders, 0)
    leader.coordinator.known_here = [orders.name]

    second = leader.send(orders, 1)

    assert (first, second) == ([], [])
    leader.coordinator.questions.pop().answer()
    assert (kinds(first), kinds(second)) == ([0], [1])


def test_with_an_epoch_per_transaction_the_partition_is_added_also_on_the_same_node(leader: Leader) -> None:
    orders = leader.bench.topic()
    leader.coordinator.known_here = [orders.name]

    assert leader.send(orders, 0, request=NEW) == []
    assert not leader.coordinator.questions.pop().verify_only


def send_to_worker(
    leader: Leader, partition: LeaderPartition, sequence: int
) -> list[AppendResult | ApiError]:
    """A batch that is so large that a worker compresses it; what becomes of it."""
    batch = write_batch(
        [Record(0, leader.bench.wall_ms, b"k", b"v" * 100_000)],
        producer_id=ALICE,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    outcome = leader.produce.append(partition, memoryview(batch), transaction=OLD)
    assert isinstance(outcome, PendingAppend)
    results: list[AppendResult | ApiError] = []
    outcome.done = results.append
    return results


def test_a_marker_refuses_a_batch_that_was_verified_on_the_same_node_and_is_with_a_worker(
    leader: Leader,
) -> None:
    orders = leader.bench.topic(compression_type="zstd")
    leader.coordinator.known_here = [orders.name]
    results = send_to_worker(leader, orders, sequence=0)

    leader.markers.write([TransactionMarker(ALICE, 0, 0, False, 0, (orders.name,))], lambda _: None)
    leader.bench.run()

    assert kinds(results) == [ErrorKind.INVALID_TRANSACTION]
    assert orders.log.producers.transactions.ongoing() == []


@pytest.mark.parametrize(("request_", "epoch", "sequence"), [(OLD, 0, 1), (NEW, 1, 0)])
def test_the_next_transaction_of_a_known_producer_waits_in_order_too(
    leader: Leader, request_: TransactionalRequest, epoch: int, sequence: int
) -> None:
    orders = leader.bench.topic()
    begin(leader, orders, request_)
    leader.end(orders, epoch=epoch)

    results = [leader.send(orders, sequence + n, epoch=epoch, request=request_) for n in range(3)]
    leader.coordinator.questions[0].answer()

    assert [kinds(result) for result in results] == [[2], [3], [4]]


@pytest.mark.parametrize("request_", [OLD, NEW])
def test_what_waits_behind_a_batch_that_fails_does_not_take_its_place(
    leader: Leader, request_: TransactionalRequest
) -> None:
    orders = leader.bench.topic()
    first = leader.send(orders, 0, request=request_)
    second = leader.send(orders, 1, request=request_)

    leader.coordinator.questions[0].answer(ErrorKind.COORDINATOR_LOADING)

    assert kinds(first) == kinds(second) == [ErrorKind.NOT_ENOUGH_REPLICAS]
    assert kinds(leader.send(orders, 1, request=request_)) == [ErrorKind.OUT_OF_ORDER_SEQUENCE]


def test_batches_of_a_producer_wait_in_their_order_and_those_of_others_do_not(leader: Leader) -> None:
    orders = leader.bench.topic()

    first, second = leader.send(orders, 0), leader.send(orders, 1)
    plain = leader.bench.append(orders)
    leader.coordinator.questions[0].answer()

    assert isinstance(plain, AppendResult)
    assert (plain.first_offset, kinds(first), kinds(second)) == (0, [1], [2])
    assert len(leader.coordinator.questions) == 1


def test_a_batch_that_comes_while_earlier_ones_have_their_turn_waits_behind_them(leader: Leader) -> None:
    orders = leader.bench.topic()
    third: list[AppendResult | ApiError] = []

    def send_third(_: object) -> None:
        outcome = leader.produce.append(orders, memoryview(batches[2]), transaction=OLD)
        assert isinstance(outcome, PendingAppend)
        outcome.done = third.append

    batches = [
        write_batch(
            [Record(0, leader.bench.wall_ms, b"k", b"v")],
            producer_id=ALICE,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        for sequence in range(3)
    ]
    for batch, done in zip(batches, (send_third, lambda _: None), strict=False):
        outcome = leader.produce.append(orders, memoryview(batch), transaction=OLD)
        assert isinstance(outcome, PendingAppend)
        outcome.done = done
    leader.bench.run()

    leader.coordinator.questions[0].answer()

    assert kinds(third) == [2]


def test_partitions_of_one_request_are_asked_for_together(leader: Leader) -> None:
    orders, bills = leader.bench.topic(), leader.bench.topic("bills")
    batches = [
        write_batch(
            [Record(0, leader.bench.wall_ms, b"k", b"v")],
            producer_id=ALICE,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        for _ in range(2)
    ]
    for partition, batch in zip((orders, bills), batches, strict=True):
        leader.produce.append(partition, memoryview(batch), transaction=NEW)

    leader.bench.run()

    (question,) = leader.coordinator.questions
    assert question.partitions == [orders.name, bills.name]
    assert not question.verify_only


def test_a_retry_that_is_in_the_log_is_answered_without_a_coordinator(leader: Leader) -> None:
    orders = leader.bench.topic()
    begin(leader, orders)
    leader.end(orders)

    assert kinds(leader.send(orders, 0)) == [0]
    assert leader.coordinator.questions == []


def test_a_batch_that_was_verified_before_its_transaction_ended_is_refused(leader: Leader) -> None:
    orders = leader.bench.topic()

    delayed = leader.send(orders, 0)
    leader.end(orders, is_commit=False)
    leader.coordinator.questions[0].answer()

    assert kinds(delayed) == [ErrorKind.INVALID_TRANSACTION]
    assert orders.log.producers.transactions.ongoing() == []


def test_of_version_2_the_next_transactions_first_batch_may_wait_for_the_marker_of_the_one_before(
    leader: Leader,
) -> None:
    orders = leader.bench.topic()
    begin(leader, orders, NEW)

    # The coordinator has raised the epoch, told the producer so, and writes the marker now.
    following = leader.send(orders, 0, epoch=1, request=NEW)
    assert leader.end(orders, epoch=1, version=2) == [None]
    leader.coordinator.questions.pop().answer()
    leader.bench.run()

    assert kinds(following) == [2]


def test_a_batch_that_a_worker_had_while_its_transaction_ended_is_refused(leader: Leader) -> None:
    orders = leader.bench.topic(compression_type="zstd")
    begin(leader, orders)
    results = send_to_worker(leader, orders, sequence=1)

    leader.markers.write([TransactionMarker(ALICE, 0, 0, True, 0, (orders.name,))], lambda _: None)
    leader.bench.run()

    assert kinds(results) == [ErrorKind.INVALID_TRANSACTION]
    assert orders.log.producers.transactions.ongoing() == []


def test_a_second_batch_does_not_begin_the_transaction_when_the_first_one_failed(leader: Leader) -> None:
    orders = leader.bench.topic()
    first = leader.send(orders, 5)
    leader.coordinator.questions[0].answer(ErrorKind.COORDINATOR_NOT_AVAILABLE)

    second = leader.send(orders, 6)
    again = leader.send(orders, 5)
    leader.coordinator.questions[1].answer()

    assert kinds(first) == [ErrorKind.NOT_ENOUGH_REPLICAS]
    assert kinds(second) == [ErrorKind.OUT_OF_ORDER_SEQUENCE]
    assert kinds(again) == [0]


def test_with_an_epoch_per_transaction_a_producer_that_nobody_knows_begins_with_sequence_zero(
    leader: Leader,
) -> None:
    orders = leader.bench.topic()

    assert kinds(leader.send(orders, 1, request=NEW)) == [ErrorKind.OUT_OF_ORDER_SEQUENCE]
    assert leader.coordinator.questions == []


@pytest.mark.parametrize(
    ("request_", "kind", "seen"),
    [
        (OLD, ErrorKind.NOT_COORDINATOR, ErrorKind.NOT_ENOUGH_REPLICAS),
        (OLD, ErrorKind.CONCURRENT_TRANSACTIONS, ErrorKind.NOT_ENOUGH_REPLICAS),
        (NEW, ErrorKind.CONCURRENT_TRANSACTIONS, ErrorKind.CONCURRENT_TRANSACTIONS),
        (OLD, ErrorKind.INVALID_TRANSACTION, ErrorKind.INVALID_TRANSACTION),
        (ABORTABLE, ErrorKind.INVALID_TRANSACTION, ErrorKind.TRANSACTION_ABORTABLE),
        (OLD, ErrorKind.TRANSACTION_ABORTABLE, ErrorKind.INVALID_TRANSACTION),
        (NEW, ErrorKind.PRODUCER_FENCED, ErrorKind.PRODUCER_FENCED),
    ],
)
def test_a_coordinators_error_is_one_that_the_producers_version_understands(
    leader: Leader, request_: TransactionalRequest, kind: ErrorKind, seen: ErrorKind
) -> None:
    orders = leader.bench.topic()

    results = leader.send(orders, 0, request=request_)
    leader.coordinator.questions[0].answer(kind)

    assert kinds(results) == [seen]
    assert orders.log.end == 0


@pytest.mark.parametrize("forged_first", [True, False])
@pytest.mark.parametrize("answered_first", [True, False])
@pytest.mark.parametrize(
    ("epoch", "request_"),
    [(9, OLD), (1, OLD._replace(transactional_id="somebody's")), (9, OLD._replace(transactional_id="x"))],
)
def test_what_the_coordinator_does_not_know_changes_nothing_for_a_batch_that_waits(
    leader: Leader, forged_first: bool, answered_first: bool, epoch: int, request_: TransactionalRequest
) -> None:
    orders = leader.bench.topic()
    sent = {}
    for is_forged in (forged_first, not forged_first):
        if is_forged:
            sent[True] = leader.send(orders, 0, epoch=epoch, request=request_)
        else:
            sent[False] = leader.send(orders, 0, epoch=1)

    answers = [
        ErrorKind.PRODUCER_FENCED if is_forged else None for is_forged in (forged_first, not forged_first)
    ]
    questions = list(zip(leader.coordinator.questions, answers, strict=True))
    for question, kind in questions if answered_first else reversed(questions):
        question.answer(kind)
        leader.bench.run()

    assert kinds(sent[True]) == [ErrorKind.PRODUCER_FENCED]
    assert kinds(sent[False]) == [0]


def test_a_verified_producer_whose_append_failed_is_served_while_something_forged_waits(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = leader.bench.topic()
    forged = leader.send(orders, 0, request=OLD._replace(transactional_id="somebody's"))
    leader.send(orders, 0)
    with monkeypatch.context() as patched:
        patched.setattr(LeaderPartition, "append", _full)
        leader.coordinator.questions[1].answer()
        leader.bench.run()

    again = leader.send(orders, 0)
    leader.coordinator.questions[2].answer()
    leader.bench.run()

    assert (kinds(again), kinds(forged)) == ([0], [])


def test_an_epoch_that_is_confirmed_while_an_earlier_one_waits_ends_that(leader: Leader) -> None:
    orders = leader.bench.topic()
    earlier = leader.send(orders, 0, epoch=1)
    later = leader.send(orders, 0, epoch=2)
    asked = leader.coordinator.questions

    asked[1].answer()
    asked[0].answer()
    leader.bench.run()

    assert (kinds(later), kinds(earlier)) == ([0], [ErrorKind.INVALID_TRANSACTION])


def test_epochs_of_one_producer_that_wait_are_bounded(leader: Leader) -> None:
    orders = leader.bench.topic()
    results = [leader.send(orders, 0, epoch=epoch) for epoch in range(verification.GUARDS_PER_PRODUCER_MAX)]

    assert kinds(leader.send(orders, 0, epoch=99)) == [ErrorKind.NOT_ENOUGH_REPLICAS]
    leader.coordinator.questions[0].answer(ErrorKind.PRODUCER_FENCED)
    leader.bench.run()
    assert kinds(leader.send(orders, 0, epoch=99)) == []
    assert [len(each) for each in results] == [1] + [0] * (len(results) - 1)


def test_producers_whose_verification_failed_are_forgotten_beyond_a_bound(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "FAILED_MAX", 2)
    orders = leader.bench.topic()
    for epoch in (1, 2, 3):
        leader.send(orders, 5, epoch=epoch)
        leader.coordinator.questions.pop().answer(ErrorKind.COORDINATOR_LOADING)
        leader.bench.run()

    results = [kinds(leader.send(orders, 6, epoch=epoch)) for epoch in (1, 2, 3)]

    # Of the first one it is not known any more that something is missing before this batch.
    assert results == [[], [ErrorKind.OUT_OF_ORDER_SEQUENCE], [ErrorKind.OUT_OF_ORDER_SEQUENCE]]


def test_an_open_transaction_goes_on_while_another_epoch_is_verified(leader: Leader) -> None:
    orders = leader.bench.topic()
    begin(leader, orders)

    forged = leader.send(orders, 0, epoch=9)

    assert kinds(leader.send(orders, 1)) == [1]
    leader.coordinator.questions.pop().answer(ErrorKind.PRODUCER_FENCED)
    leader.bench.run()
    assert kinds(forged) == [ErrorKind.PRODUCER_FENCED]
    assert kinds(leader.send(orders, 2)) == [2]


def test_an_epoch_that_the_coordinator_has_confirmed_fences_those_before(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = leader.bench.topic()
    leader.send(orders, 0, epoch=9)
    with monkeypatch.context() as patched:
        patched.setattr(LeaderPartition, "append", _full)
        leader.coordinator.questions.pop().answer()
        leader.bench.run()

    assert kinds(leader.send(orders, 0, epoch=1)) == [ErrorKind.PRODUCER_FENCED]


def _full(*_: object) -> None:
    raise StorageError("no space left")


def test_a_transactional_batch_needs_a_transactional_id_and_an_open_transaction_takes_no_other(
    leader: Leader,
) -> None:
    orders = leader.bench.topic()
    begin(leader, orders)

    assert kinds(leader.send(orders, 1, request=None)) == [ErrorKind.TRANSACTIONAL_ID_NOT_AUTHORIZED]
    assert kinds(leader.send(orders, 1, is_transactional=False)) == [ErrorKind.INVALID_TRANSACTION]


def test_a_batch_that_waits_gets_the_partitions_error_when_the_partition_has_moved(leader: Leader) -> None:
    orders = leader.bench.topic()
    results = leader.send(orders, 0)

    orders.stop("it moves", wanted=True)
    leader.coordinator.questions[0].answer()

    assert kinds(results) == [ErrorKind.NOT_LEADER]


def test_a_marker_ends_the_transaction_and_moves_the_last_stable_offset(leader: Leader) -> None:
    orders = leader.bench.topic()
    begin(leader, orders)
    before = orders.log.last_stable_offset

    assert leader.end(orders, is_commit=False) == [None]

    assert (before, orders.log.last_stable_offset, orders.log.end) == (0, 2, 2)
    (aborted,) = orders.log.aborted_between(orders.log.start, orders.log.end)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (ALICE, 0, 1)


def test_a_read_committed_fetch_waits_for_the_marker_and_others_do_not(leader: Leader) -> None:
    orders = leader.bench.topic()
    begin(leader, orders)
    wanted = FetchPartition(orders, 0, 10_000)
    committed = leader.bench.fetch(FetchLimits(1, 10_000, 60_000, read_committed=True), wanted)
    anything = leader.bench.fetch(FetchLimits(1, 10_000, 60_000), wanted)
    leader.bench.run()
    before = len(committed)

    leader.end(orders)

    assert (before, len(anything)) == (0, 1)
    ((found,),) = committed
    assert found.records is not None
    assert (found.last_stable_offset, found.aborted) == (2, [])


def test_a_batch_of_an_old_epoch_is_refused_behind_a_marker_that_raised_it(leader: Leader) -> None:
    orders = leader.bench.topic()
    begin(leader, orders, NEW)
    leader.end(orders, epoch=1, version=2)

    assert kinds(leader.send(orders, 1, request=NEW)) == [ErrorKind.PRODUCER_FENCED]
    next_one = leader.send(orders, 0, epoch=1, request=NEW)
    leader.coordinator.questions[0].answer()
    assert kinds(next_one) == [2]


def test_a_marker_of_an_old_coordinator_or_producer_is_refused(leader: Leader) -> None:
    orders = leader.bench.topic()
    begin(leader, orders)
    leader.end(orders, epoch=3, coordinator_epoch=5)

    assert leader.end(orders, epoch=3, coordinator_epoch=4) == [ErrorKind.STALE_COORDINATOR]
    assert leader.end(orders, epoch=2, coordinator_epoch=5) == [ErrorKind.PRODUCER_FENCED]
    assert orders.log.end == 2


def test_of_version_2_a_marker_of_an_equal_epoch_is_refused_or_a_repetition(leader: Leader) -> None:
    orders = leader.bench.topic()
    begin(leader, orders, NEW)

    assert leader.end(orders, epoch=0, version=2) == [ErrorKind.PRODUCER_FENCED]
    assert leader.end(orders, epoch=1, version=2) == [None]
    assert leader.end(orders, epoch=1, version=2) == [None]
    # The repetition wrote nothing.
    assert orders.log.end == 2


def test_a_marker_without_a_transaction_is_written_and_harmless(leader: Leader) -> None:
    orders = leader.bench.topic()

    assert leader.end(orders, is_commit=False) == [None]

    assert (orders.log.end, orders.log.last_stable_offset) == (1, 1)
    assert orders.log.aborted_between(orders.log.start, orders.log.end) == []


def test_many_markers_take_many_turns_of_the_loop_and_all_are_answered(leader: Leader) -> None:
    orders = leader.bench.topic()
    missing = TopicPartition("missing", 0)  # type: ignore[arg-type]
    markers = [TransactionMarker(n, 0, 0, True, 0, (orders.name, missing)) for n in range(250)]
    heard: list[MarkerResults] = []

    leader.markers.write(markers, heard.append)
    at_once = orders.log.end
    leader.bench.run()

    assert at_once < 250
    (results,) = heard
    assert orders.log.end == 250
    assert all(result[orders.name] is None for result in results)
    assert {error.kind for result in results if (error := result[missing])} == {ErrorKind.NOT_LEADER}


def test_a_transaction_that_nobody_ends_is_reported_once_and_shown_until_it_ends(leader: Leader) -> None:
    metrics = LateTransactionMetrics()
    partitions = leader.bench.backend.partitions
    LateTransactions(leader.bench.runtime, partitions, 60_000, metrics).start()
    orders = leader.bench.topic()
    begin(leader, orders)

    with recorded_events() as events:
        leader.bench.run(350 * SECOND)
        in_time = list(metrics.late.figures)
        leader.bench.run(190 * SECOND)
        late = [reading() for reading in metrics.late.figures.values()]
        leader.end(orders, is_commit=False)
        leader.bench.run(61 * SECOND)

    assert in_time == []
    assert late == [1]
    assert list(metrics.late.figures) == []
    assert [(one["producer_id"], one["first_offset"]) for one in events.named("transaction.late")] == [
        (ALICE, 0)
    ]
