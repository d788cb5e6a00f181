"""Many transactions of one sink, committed by one record."""

from typing import Any

from penstock.core.model import ApiError, ErrorKind, ProducerEpoch, ProducerId, Timestamp
from penstock.core.transactions import (
    AddPartitions,
    BatchCommitted,
    BatchDone,
    BatchMember,
    CommitBatch,
    CompleteTransaction,
    EndTransaction,
    InitProducer,
    MarkersDue,
    ProducerGranted,
    ProducerIdentity,
    TransactionOptions,
    TransactionState,
)
from penstock.core.transactions.facts import bytes_of
from tests.unit.core.transactions.transaction_driver import TIMEOUT_MS, WALL_START_MS, Driver, at, producer

S = TransactionState
DONE, DONE_BEFORE = BatchDone(is_repeat=False), BatchDone(is_repeat=True)


class Sink(Driver):
    """A driver with tasks that write under the ids of a sink."""

    def write(self, task: int) -> BatchMember:
        transactional_id = f"sink#{task}"
        granted = self.ask_with_id(InitProducer, transactional_id=transactional_id, timeout_ms=TIMEOUT_MS)
        assert isinstance(granted, ProducerGranted), granted
        self.ask(
            AddPartitions,
            transactional_id=transactional_id,
            producer=granted.producer,
            partitions=(at("t", task),),
            client_version=0,
        )
        return BatchMember(transactional_id, *granted.producer)

    def commit(self, batch: str, *members: BatchMember, name: str = "sink") -> Any:
        def on_reply(_: Any) -> None:
            """Identifies the command."""

        command = CommitBatch(on_reply=on_reply, sink=name, batch=batch, members=members)
        return self._take(self.machine.decide(command, self.now))[on_reply]

    def states(self) -> list[TransactionState]:
        return [known.state for known in self.machine.image.transactions.values()]


def kind(reply: Any) -> ErrorKind:
    assert isinstance(reply, ApiError), reply
    return reply.kind


def test_a_batch_commits_all_its_transactions_by_one_record() -> None:
    sink = Sink()
    members = [sink.write(task) for task in range(3)]
    stored = len(sink.log)

    assert sink.commit("7", *members) == DONE

    assert len(sink.log) == stored + 1
    assert sink.states() == [S.PREPARE_COMMIT] * 3
    assert sink.events == [MarkersDue(f"sink#{task}") for task in range(3)]
    assert [known.producer_epoch for known in sink.machine.image.transactions.values()] == [1, 1, 1]


def test_a_repeated_batch_is_done_and_what_it_lists_now_stays_open() -> None:
    sink = Sink()
    sink.commit("7", sink.write(0))
    again = sink.write(1)

    assert sink.commit("7", again) == DONE_BEFORE
    assert sink.states() == [S.PREPARE_COMMIT, S.ONGOING]
    assert sink.commit("8", again) == DONE


def test_one_transaction_that_is_not_as_listed_refuses_all() -> None:
    sink = Sink()
    good, stale = sink.write(0), sink.write(1)
    for bad, error in (
        (stale._replace(producer_epoch=ProducerEpoch(1)), ErrorKind.PRODUCER_FENCED),
        (stale._replace(producer_id=ProducerId(5)), ErrorKind.UNKNOWN_PRODUCER),
        (stale._replace(transactional_id="sink#9"), ErrorKind.UNKNOWN_PRODUCER),
        (good, ErrorKind.INVALID_REQUEST),
        (stale._replace(transactional_id="other#1"), ErrorKind.INVALID_REQUEST),
    ):
        assert kind(sink.commit("7", good, bad)) is error
    assert sink.states() == [S.ONGOING, S.ONGOING]
    assert sink.commit("7", good, stale) == DONE


def test_a_transaction_that_ended_meanwhile_refuses_all() -> None:
    sink = Sink()
    open_one, ended = sink.write(0), sink.write(1)
    sink.pass_ms(TIMEOUT_MS)
    again = sink.write(2)

    assert kind(sink.commit("7", again, ended)) is ErrorKind.PRODUCER_FENCED
    assert kind(sink.commit("7", again, open_one)) is ErrorKind.PRODUCER_FENCED
    who = ProducerIdentity(again.producer_id, again.producer_epoch)
    sink.ask(EndTransaction, transactional_id="sink#2", producer=who, is_commit=False)
    assert kind(sink.commit("7", again)) is ErrorKind.CONCURRENT_TRANSACTIONS
    sink.ask(CompleteTransaction, transactional_id="sink#2", producer=who)
    refused = sink.commit("7", again)
    assert kind(refused) is ErrorKind.INVALID_TRANSACTION
    assert "sink#2" in refused.detail
    assert "CompleteAbort" in refused.detail


def test_a_committed_batch_is_not_undone_by_timeouts_nor_by_its_producers() -> None:
    sink = Sink()
    member = sink.write(0)
    sink.commit("7", member)

    sink.pass_ms(2 * TIMEOUT_MS)

    assert sink.states() == [S.PREPARE_COMMIT]
    who = ProducerIdentity(member.producer_id, member.producer_epoch)
    for version in (0, 2):
        late = sink.ask(
            EndTransaction,
            transactional_id="sink#0",
            producer=who,
            is_commit=False,
            client_version=version,
        )
        assert kind(late) in (ErrorKind.PRODUCER_FENCED, ErrorKind.INVALID_TRANSACTION)
    assert sink.states() == [S.PREPARE_COMMIT]


def test_a_task_that_commits_after_its_batch_was_committed_goes_on_with_the_next_epoch() -> None:
    sink = Sink()
    member = sink.write(0)
    sink.commit("7", member)
    who = ProducerIdentity(member.producer_id, member.producer_epoch)
    sink.ask(
        CompleteTransaction,
        transactional_id="sink#0",
        producer=who._replace(epoch=ProducerEpoch(who.epoch + 1)),
    )
    assert sink.states() == [S.COMPLETE_COMMIT]

    def end(version: int, *, is_commit: bool) -> Any:
        return sink.ask(
            EndTransaction,
            transactional_id="sink#0",
            producer=who,
            is_commit=is_commit,
            client_version=version,
        )

    granted = end(2, is_commit=True)

    assert isinstance(granted, ProducerGranted)
    assert granted.producer == who._replace(epoch=ProducerEpoch(who.epoch + 1))
    assert kind(end(2, is_commit=False)) is ErrorKind.INVALID_TRANSACTION
    assert kind(end(0, is_commit=True)) is ErrorKind.PRODUCER_FENCED


def test_a_new_coordinator_finds_the_batch_in_the_log() -> None:
    sink = Sink()
    members = [sink.write(task) for task in range(2)]
    sink.commit("7", *members)

    successor = Sink(facts=sink.log)

    assert successor.states() == [S.PREPARE_COMMIT] * 2
    assert successor.events == sink.events
    assert successor.commit("7") == DONE_BEFORE


def test_a_record_that_is_read_again_does_not_touch_later_transactions() -> None:
    sink = Sink()
    sink.commit("7", sink.write(0))
    committed = sink.log[-1]
    assert isinstance(committed, BatchCommitted)
    known = sink.machine.image.transactions["sink#0"]
    sink.ask(
        CompleteTransaction,
        transactional_id="sink#0",
        producer=producer(known.producer_id, known.producer_epoch),
    )
    sink.write(0)
    before = dict(sink.machine.image.transactions)

    sink.machine.apply(committed)

    assert sink.machine.image.transactions == before
    assert before["sink#0"].state is S.ONGOING


def test_a_snapshot_has_the_batches_too() -> None:
    sink = Sink()
    sink.commit("7", sink.write(0))
    sink.commit("8")

    snapshot = list(sink.machine.snapshot())

    assert len(snapshot) == sink.machine.size() == 3
    rebuilt = Sink(facts=snapshot)
    assert rebuilt.machine.image == sink.machine.image
    assert rebuilt.commit("8") == DONE_BEFORE


def test_batches_are_remembered_up_to_a_number_and_for_a_time() -> None:
    hour_ms = 3_600_000
    sink = Sink(TransactionOptions(batches_per_sink_max=2, id_expiration_ms=2 * hour_ms))
    for batch in ("1", "2", "3"):
        sink.commit(batch)
        sink.pass_ms(1)

    assert list(sink.machine.image.batches["sink"]) == ["2", "3"]
    sink.pass_ms(hour_ms)
    sink.commit("4")
    sink.pass_ms(hour_ms)
    assert list(sink.machine.image.batches["sink"]) == ["4"]
    sink.pass_ms(hour_ms)
    assert sink.machine.image.batches == {}


def test_without_room_a_sink_keeps_its_newest_and_a_new_one_is_refused() -> None:
    sink = Sink(TransactionOptions(batches_bytes_max=2 * bytes_of("sink", "1")))
    for batch in ("1", "2", "3"):
        assert sink.commit(batch) == DONE
        sink.pass_ms(1)

    refused = sink.commit("1", name="another")

    assert list(sink.machine.image.batches["sink"]) == ["2", "3"]
    assert kind(refused) is ErrorKind.INVALID_REQUEST
    assert sink.machine.image.batch_bytes == 2 * bytes_of("sink", "1")


def test_a_batch_has_a_limit() -> None:
    sink = Sink(TransactionOptions(batch_bytes_max=30))
    members = [sink.write(task) for task in range(2)]

    assert kind(sink.commit("7", *members)) is ErrorKind.INVALID_REQUEST
    assert sink.commit("7", members[0]) == DONE

    few = Sink(TransactionOptions(batch_members_max=1))
    members = [few.write(task) for task in range(2)]
    assert kind(few.commit("7", *members)) is ErrorKind.INVALID_REQUEST
    assert few.commit("7", members[0]) == DONE


def test_a_batch_that_is_forgotten_while_its_markers_are_on_their_way_stays_committed() -> None:
    options = TransactionOptions(batches_per_sink_max=1)
    sink = Sink(options)
    sink.commit("1", sink.write(0), sink.write(1))
    known = sink.machine.image.transactions["sink#1"]
    done = producer(known.producer_id, known.producer_epoch)
    sink.ask(CompleteTransaction, transactional_id="sink#1", producer=done)
    sink.commit("2")

    # As a compacted log has it: nothing is left of the batch.
    kept = [fact for fact in sink.log if not (isinstance(fact, BatchCommitted) and fact.batch == "1")]
    successor = Sink(options, facts=kept)

    assert successor.states() == [S.PREPARE_COMMIT, S.COMPLETE_COMMIT]
    assert successor.events == [MarkersDue("sink#0")]


def test_the_oldest_batches_are_forgotten_first_also_after_a_rewrite_of_the_log() -> None:
    options = TransactionOptions(batches_per_sink_max=3)
    sink = Sink(options)
    sink.commit("1")
    sink.commit("2")
    copies = sink.machine.snapshot()
    # While the log is being rewritten: its record stands before the copies.
    sink.commit("3")
    rewritten = Sink(options, facts=[sink.log[-1], *copies])

    rewritten.commit("4")

    assert sorted(rewritten.machine.image.batches["sink"]) == ["2", "3", "4"]
    assert rewritten.commit("3") == DONE_BEFORE


def test_batches_of_a_coordinator_whose_clock_is_behind_are_the_latest_nevertheless() -> None:
    options = TransactionOptions(batches_per_sink_max=2)
    sink = Sink(options, now_ms=60_000)
    sink.commit("1")
    sink.commit("2")

    behind = Sink(options, facts=sink.log)
    behind.commit("3")
    behind.commit("4")

    assert list(behind.machine.image.batches["sink"]) == ["3", "4"]


def test_many_batches_are_forgotten_a_part_at_a_time() -> None:
    options = TransactionOptions(id_expiration_ms=1_000, checked_per_turn_max=10)
    batches = [BatchCommitted(f"sink {at}", "1", (), Timestamp(WALL_START_MS)) for at in range(100)]
    sink = Sink(options, facts=batches)
    sink.now_ms += 1_000

    outcome = sink.machine.expire(sink.now)
    for fact in outcome.facts:
        sink.machine.apply(fact)
    sink.pass_ms(0)

    assert 0 < len(outcome.facts) <= 10
    assert sink.machine.image.batches == {}
