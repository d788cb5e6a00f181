"""Transactions from the first InitProducer to the last marker, and who is fenced on the way."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from penstock.core.model import ApiError, ErrorKind, ProducerEpoch, TopicPartition
from penstock.core.transactions import (
    EPOCH_MAX,
    AddPartitions,
    MarkersDue,
    PartitionResult,
    PartitionResults,
    ProducerGranted,
    TransactionCompleted,
    TransactionOptions,
    TransactionState,
)
from tests.unit.core.transactions.transaction_driver import ID, NEW, OLD, TIMEOUT_MS, Driver, at, producer

S = TransactionState


def kind(reply: Any) -> ErrorKind:
    assert isinstance(reply, ApiError), reply
    return reply.kind


def test_a_new_id_gets_a_producer_id_with_epoch_0() -> None:
    assert Driver().init() == ProducerGranted(producer(1_000, 0))


def test_a_second_instance_gets_the_next_epoch_and_the_first_is_fenced() -> None:
    driver = Driver()
    first = driver.begin()

    second = driver.begin()

    assert second == producer(1_000, 1)
    assert kind(driver.add(first)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.end(first)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.end(first, version=OLD)) is ErrorKind.PRODUCER_FENCED


def test_a_timeout_above_the_limit_is_refused() -> None:
    driver = Driver(TransactionOptions(timeout_ms_max=1_000))

    assert kind(driver.init(timeout_ms=1_001)) is ErrorKind.INVALID_TRANSACTION_TIMEOUT
    assert kind(driver.init(timeout_ms=0)) is ErrorKind.INVALID_TRANSACTION_TIMEOUT
    assert isinstance(driver.init(timeout_ms=1_000), ProducerGranted)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_prepared_then_completed_under_the_next_epoch(commit: bool) -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who, at("a", 1))
    driver.now_ms += 7
    driver.add(who, at("b"), at("a", 1))
    assert (driver.stored().state, driver.stored().partitions) == (S.ONGOING, (at("a", 1), at("b")))
    assert driver.stored().updated_at - driver.stored().started_at == 7

    reply = driver.end(who, commit=commit)

    assert reply == ProducerGranted(producer(1_000, 1))
    assert driver.stored().state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert (driver.stored().producer_epoch, driver.stored().partitions) == (1, (at("a", 1), at("b")))
    assert driver.events == [MarkersDue(ID)]
    driver.now_ms += 3
    driver.complete()
    assert driver.stored().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert driver.stored().partitions == ()
    assert driver.events[1:] == [TransactionCompleted(ID, commit, 10)]


def test_an_older_client_keeps_its_epoch() -> None:
    driver = Driver()
    who = driver.begin()

    assert driver.run(who, version=OLD) == who
    assert driver.run(who, commit=False, version=OLD) == who


def test_partitions_wait_until_the_transaction_before_has_ended() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who)
    reply = driver.end(who)
    assert isinstance(reply, ProducerGranted)

    first, second = (driver.add_later(reply.producer, at("t", index)) for index in (0, 1))
    assert (first, second) == ([], [])
    assert kind(driver.verify(reply.producer, at("t"))) is ErrorKind.CONCURRENT_TRANSACTIONS
    assert kind(driver.end(reply.producer)) is ErrorKind.CONCURRENT_TRANSACTIONS
    assert kind(driver.init()) is ErrorKind.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert first == [PartitionResults((PartitionResult(at("t")),))]
    assert second == [PartitionResults((PartitionResult(at("t", 1)),))]
    assert (driver.stored().state, driver.stored().partitions) == (S.ONGOING, (at("t"), at("t", 1)))
    driver.pass_ms(TIMEOUT_MS)
    assert driver.stored().state is S.PREPARE_ABORT


def test_an_abort_does_not_overtake_the_partitions_that_wait() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who, version=OLD)
    driver.end(who, version=OLD)

    added = driver.add_later(who, at("t"), version=OLD)
    assert kind(driver.end(who, commit=False, version=OLD)) is ErrorKind.CONCURRENT_TRANSACTIONS
    driver.complete()

    assert len(added) == 1
    assert isinstance(driver.end(who, commit=False, version=OLD), ProducerGranted)
    assert driver.stored().state is S.PREPARE_ABORT


def test_partitions_do_not_wait_for_ever() -> None:
    driver = Driver(TransactionOptions(parked_ms=500, parked_max=2))
    who = driver.begin()
    driver.add(who)
    reply = driver.end(who)
    assert isinstance(reply, ProducerGranted)
    first = driver.add_later(reply.producer, at("t"))
    driver.now_ms += 100
    second = driver.add_later(reply.producer, at("t"))
    too_many = driver.add_later(reply.producer, at("t"))

    driver.pass_ms(400)

    assert [kind(answer) for answer in first + too_many] == [ErrorKind.CONCURRENT_TRANSACTIONS] * 2
    assert second == []
    driver.complete()
    assert len(second) == 1
    driver.pass_ms(1_000)
    assert (len(first), len(second)) == (1, 1)


def test_adding_the_same_partitions_again_stores_nothing() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who, at("a"), at("b"))
    stored = len(driver.log)

    assert driver.add(who, at("b")) == PartitionResults((PartitionResult(at("b")),))
    assert len(driver.log) == stored


def test_strangers_are_not_served() -> None:
    driver = Driver()

    assert kind(driver.add(producer(5, 0))) is ErrorKind.UNKNOWN_PRODUCER
    assert kind(driver.end(producer(5, 0))) is ErrorKind.UNKNOWN_PRODUCER
    driver.begin()
    for version in (OLD, NEW):
        assert kind(driver.add(producer(5, 0), version=version)) is ErrorKind.UNKNOWN_PRODUCER
        assert kind(driver.end(producer(5, 0), version=version)) is ErrorKind.UNKNOWN_PRODUCER
    assert kind(driver.verify(producer(5, 0), at("t"))) is ErrorKind.UNKNOWN_PRODUCER


def test_only_partitions_of_the_open_transaction_are_verified() -> None:
    driver = Driver()
    who = driver.begin()
    nothing = driver.verify(who, at("t"))
    driver.add(who, at("t"))

    assert nothing == PartitionResults((PartitionResult(at("t"), ErrorKind.TRANSACTION_ABORTABLE),))
    assert driver.verify(who, at("t"), at("t", 1)) == PartitionResults(
        (PartitionResult(at("t")), PartitionResult(at("t", 1), ErrorKind.TRANSACTION_ABORTABLE))
    )
    assert kind(driver.verify(producer(1_000, 7), at("t"))) is ErrorKind.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_returns_the_same_and_changes_nothing(commit: bool) -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who)
    first = driver.end(who, commit=commit)

    assert kind(driver.end(who, commit=commit)) is ErrorKind.CONCURRENT_TRANSACTIONS
    assert kind(driver.end(who, commit=not commit)) is ErrorKind.INVALID_TRANSACTION
    driver.complete()
    stored = len(driver.log)
    assert driver.end(who, commit=commit) == first
    assert kind(driver.end(who, commit=not commit)) is ErrorKind.INVALID_TRANSACTION
    assert len(driver.log) == stored


def test_a_delayed_end_does_not_touch_the_next_transaction() -> None:
    driver = Driver()
    first = driver.begin()
    second = driver.run(first)
    driver.add(second)

    assert kind(driver.end(first)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.end(first, commit=False)) is ErrorKind.PRODUCER_FENCED
    assert driver.stored().state is S.ONGOING


def test_an_older_client_repeats_its_end_too() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who, version=OLD)
    driver.end(who, version=OLD)

    assert kind(driver.end(who, version=OLD)) is ErrorKind.CONCURRENT_TRANSACTIONS
    assert kind(driver.end(who, commit=False, version=OLD)) is ErrorKind.INVALID_TRANSACTION
    driver.complete()
    assert driver.end(who, version=OLD) == ProducerGranted(who)
    assert kind(driver.end(who, commit=False, version=OLD)) is ErrorKind.INVALID_TRANSACTION


def test_nothing_to_end() -> None:
    driver = Driver()
    who = driver.begin()

    assert kind(driver.end(who, version=OLD)) is ErrorKind.INVALID_TRANSACTION
    assert kind(driver.end(who, commit=False, version=OLD)) is ErrorKind.INVALID_TRANSACTION
    assert kind(driver.end(who)) is ErrorKind.INVALID_TRANSACTION


def test_an_abort_without_partitions_ends_the_epoch() -> None:
    # A batch may be on its way to a leader that adds its partition: it must not be part of the next one.
    driver = Driver()
    who = driver.begin()

    assert driver.end(who, commit=False) == ProducerGranted(producer(1_000, 1))
    driver.complete()
    assert driver.end(producer(1_000, 1), commit=False) == ProducerGranted(producer(1_000, 2))
    driver.complete()
    after = driver.run(producer(1_000, 2))
    assert driver.end(after, commit=False) == ProducerGranted(producer(1_000, 4))
    assert kind(driver.add(who)) is ErrorKind.PRODUCER_FENCED


def test_a_new_instance_aborts_what_is_open_and_asks_again() -> None:
    driver = Driver()
    first = driver.begin()
    driver.add(first)

    assert kind(driver.init()) is ErrorKind.CONCURRENT_TRANSACTIONS

    assert (driver.stored().state, driver.stored().producer_epoch) == (S.PREPARE_ABORT, 1)
    assert driver.events == [MarkersDue(ID)]
    assert kind(driver.init()) is ErrorKind.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.begin() == producer(1_000, 2)
    for version in (OLD, NEW):
        assert kind(driver.end(first, version=version)) is ErrorKind.PRODUCER_FENCED


def test_a_producer_goes_on_with_the_next_epoch_after_an_error() -> None:
    driver = Driver()
    first = driver.begin()

    second = driver.begin(expected=first)

    assert second == producer(1_000, 1)
    # The response was lost: the same again.
    assert driver.begin(expected=first) == second
    assert driver.begin(expected=second) == producer(1_000, 2)
    assert kind(driver.init(first)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.init(producer(77, 2))) is ErrorKind.PRODUCER_FENCED


def test_a_fenced_producer_cannot_go_on_nor_end_what_its_successor_began() -> None:
    driver = Driver()
    first = driver.begin()
    second = driver.begin()
    assert kind(driver.init(first)) is ErrorKind.PRODUCER_FENCED
    driver.add(second)

    assert kind(driver.init(first)) is ErrorKind.PRODUCER_FENCED
    assert driver.stored().state is S.ONGOING


def test_a_producer_that_aborts_by_starting_again_is_not_fenced() -> None:
    driver = Driver()
    first = driver.begin()
    driver.add(first)

    assert kind(driver.init(first)) is ErrorKind.CONCURRENT_TRANSACTIONS
    driver.complete()

    assert driver.begin(expected=first) == producer(1_000, 1)


def test_a_producer_whose_end_got_no_response_starts_again_with_the_epoch_that_it_has_by_now() -> None:
    driver = Driver()
    first = driver.begin()
    second = driver.run(first)

    assert driver.begin(expected=first) == second


def test_an_epoch_before_a_fenced_one_does_not_come_back() -> None:
    driver = Driver()
    first = driver.begin()
    second = driver.begin(expected=first)
    driver.add(second)
    driver.init()
    driver.complete()

    assert kind(driver.init(first)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.init(second)) is ErrorKind.PRODUCER_FENCED


def exhausted(last_epoch: int) -> Driver:
    """A producer whose epochs are nearly used up."""
    driver = Driver()
    driver.begin()
    driver.machine.apply(replace(driver.stored(), producer_epoch=ProducerEpoch(last_epoch)))
    driver.log.append(driver.stored())
    return driver


def test_a_new_producer_id_follows_the_last_epoch() -> None:
    driver = exhausted(EPOCH_MAX - 2)
    last = driver.begin()
    assert last == producer(1_000, EPOCH_MAX - 1)

    after = driver.begin(expected=last)

    assert after == producer(1_001, 0)
    assert driver.begin(expected=last) == after
    assert driver.begin() == producer(1_001, 1)
    assert kind(driver.init(last)) is ErrorKind.PRODUCER_FENCED


def test_the_holder_of_an_id_that_was_used_up_stays_fenced_when_the_next_one_is_nearly_used_up() -> None:
    driver = exhausted(EPOCH_MAX - 1)
    zombie = producer(1_000, EPOCH_MAX - 1)
    assert driver.begin(expected=zombie) == producer(1_001, 0)
    for epoch in (EPOCH_MAX - 1, EPOCH_MAX):
        last_epoch = ProducerEpoch(epoch - 1)
        driver.machine.apply(
            replace(driver.stored(), producer_epoch=ProducerEpoch(epoch), last_epoch=last_epoch)
        )

        assert kind(driver.init(zombie)) is ErrorKind.PRODUCER_FENCED


def test_the_last_epoch_of_an_id_ends_with_a_new_id() -> None:
    driver = exhausted(EPOCH_MAX - 1)
    last = producer(1_000, EPOCH_MAX - 1)
    driver.add(last)

    reply = driver.end(last)

    assert reply == ProducerGranted(producer(1_001, 0))
    assert (driver.stored().producer_id, driver.stored().producer_epoch) == (1_000, EPOCH_MAX)
    assert driver.add_later(producer(1_001, 0), at("t")) == []
    assert kind(driver.end(last)) is ErrorKind.CONCURRENT_TRANSACTIONS
    assert kind(driver.init(producer(1_001, 0))) is ErrorKind.CONCURRENT_TRANSACTIONS
    driver = driver.failover()
    driver.complete()
    assert driver.end(last) == reply
    assert kind(driver.end(last, commit=False)) is ErrorKind.INVALID_TRANSACTION
    assert driver.run(producer(1_001, 0)) == producer(1_001, 1)
    assert kind(driver.end(last)) is ErrorKind.UNKNOWN_PRODUCER


def test_nobody_writes_with_the_epoch_of_the_last_marker() -> None:
    driver = exhausted(EPOCH_MAX - 1)
    last = producer(1_000, EPOCH_MAX - 1)
    driver.add(last)
    assert kind(driver.init(last)) is ErrorKind.CONCURRENT_TRANSACTIONS
    driver.complete()

    assert driver.begin(expected=last) == producer(1_001, 0)


def test_a_transaction_of_too_many_partitions_is_refused() -> None:
    driver = Driver(TransactionOptions(partition_bytes_max=100))
    who = driver.begin()

    assert isinstance(driver.add(who, *(at("t", n) for n in range(11))), PartitionResults)
    assert kind(driver.add(who, at("t", 11))) is ErrorKind.INVALID_REQUEST
    assert len(driver.stored().partitions) == 11


def test_the_partitions_of_a_transaction_are_counted_too() -> None:
    driver = Driver(TransactionOptions(partitions_max=2))
    who = driver.begin()

    assert isinstance(driver.add(who, at("t"), at("u")), PartitionResults)
    assert kind(driver.add(who, at("v"))) is ErrorKind.INVALID_REQUEST


def test_names_count_by_their_bytes() -> None:
    driver = Driver(TransactionOptions(partition_bytes_max=100))
    who = driver.begin()

    assert kind(driver.add(who, at("\N{GRINNING FACE}" * 30))) is ErrorKind.INVALID_REQUEST


def test_partitions_of_another_kind_of_client_are_noted() -> None:
    driver = Driver()
    who = driver.begin()
    driver.ask(AddPartitions, producer=who, partitions=(at("t"),), client_version=OLD)

    assert driver.stored().client_version == OLD


def test_a_client_that_ends_with_its_epoch_gets_markers_of_an_older_client() -> None:
    driver = Driver()
    who = driver.begin()
    # Its batches have added the partition, but it ends the transaction as older clients do.
    driver.add(who, version=NEW)
    driver.end(who, version=OLD)

    prepared = driver.prepared()

    assert prepared is not None
    # A marker of version 2 with the records' own epoch would be refused, and its partition would hang.
    assert (prepared.producer_epoch, prepared.client_version) == (who.epoch, OLD)


def test_nobody_gets_the_epoch_of_the_last_marker_after_a_timeout() -> None:
    driver = exhausted(EPOCH_MAX - 1)
    last = producer(1_000, EPOCH_MAX - 1)
    driver.add(last)
    driver.pass_ms(TIMEOUT_MS)
    driver.complete()

    assert kind(driver.end(last, commit=False)) is ErrorKind.PRODUCER_FENCED
    assert driver.begin() == producer(1_001, 0)


def test_nobody_takes_the_epoch_of_the_last_marker() -> None:
    driver = exhausted(EPOCH_MAX - 1)
    driver.add(producer(1_000, EPOCH_MAX - 1))
    driver.pass_ms(TIMEOUT_MS)
    driver.complete()
    taken = producer(1_000, EPOCH_MAX)

    assert kind(driver.add(taken)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.end(taken, commit=False)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.end(taken, commit=False, version=OLD)) is ErrorKind.PRODUCER_FENCED


class ComparedPartition(TopicPartition):
    """Counts how often it is compared with another."""

    __slots__ = ()
    comparisons: ClassVar[list[object]] = []

    def __eq__(self, other: object) -> bool:
        self.comparisons.append(other)
        return tuple(self) == other

    __hash__ = TopicPartition.__hash__


def test_many_partitions_are_verified_without_going_through_all_of_them_for_each() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who, *[at("t", index) for index in range(2_000)])

    driver.verify(who, *[ComparedPartition(*at("u", index)) for index in range(2_000)])

    assert len(ComparedPartition.comparisons) < 20_000
