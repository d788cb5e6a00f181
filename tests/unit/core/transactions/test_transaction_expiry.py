"""Transactions that take too long, ids that nobody uses, and coordinators that take over."""

from typing import Any

from penstock.core.model import ApiError, ErrorKind
from penstock.core.transactions import (
    AddPartitions,
    CompleteTransaction,
    DescribedTransaction,
    DescribeTransaction,
    ListedTransactions,
    ListTransactions,
    MarkersDue,
    ProducerGranted,
    TransactionOptions,
    TransactionState,
    TransactionTimedOut,
)
from penstock.core.transactions.facts import bytes_of
from tests.unit.core.transactions.transaction_driver import (
    ID,
    OLD,
    TIMEOUT_MS,
    WALL_START_MS,
    Driver,
    at,
    ignore,
    producer,
)

S = TransactionState
HOUR_MS = 3_600_000


def kind(reply: Any) -> ErrorKind:
    assert isinstance(reply, ApiError), reply
    return reply.kind


def test_a_transaction_that_takes_too_long_is_aborted_under_the_next_epoch() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who)
    driver.pass_ms(TIMEOUT_MS - 1)
    assert driver.stored().state is S.ONGOING

    driver.pass_ms(1)

    assert (driver.stored().state, driver.stored().producer_epoch) == (S.PREPARE_ABORT, 1)
    assert driver.events == [MarkersDue(ID), TransactionTimedOut(ID, TIMEOUT_MS)]
    assert kind(driver.end(who)) is ErrorKind.INVALID_TRANSACTION
    assert kind(driver.end(who, version=OLD)) is ErrorKind.PRODUCER_FENCED
    driver.complete()
    assert kind(driver.add(who)) is ErrorKind.PRODUCER_FENCED
    assert kind(driver.init(who)) is ErrorKind.PRODUCER_FENCED
    # A client with an epoch for each transaction aborts what was aborted already, and goes on.
    assert driver.end(who, commit=False) == ProducerGranted(producer(1_000, 1))


def test_the_timeout_counts_from_the_transactions_own_beginning() -> None:
    driver = Driver()
    who = driver.begin()
    who = driver.run(who)
    driver.pass_ms(TIMEOUT_MS // 2)
    driver.add(who)

    driver.pass_ms(TIMEOUT_MS - 1)

    assert driver.stored().state is S.ONGOING
    driver.pass_ms(1)
    assert driver.stored().state is S.PREPARE_ABORT


def test_many_short_transactions_leave_no_timeouts_behind() -> None:
    driver = Driver()
    who = driver.begin()
    for _ in range(500):
        who = driver.run(who)

    driver.pass_ms(TIMEOUT_MS)

    assert driver.stored().state is S.COMPLETE_COMMIT
    assert len(driver.machine._timeouts._heap) < 100


def test_a_new_coordinator_goes_on_with_what_is_prepared_and_what_is_open() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who)
    driver.pass_ms(TIMEOUT_MS - 1)
    driver = driver.failover()
    # The timeout begins again, in full: while nobody coordinated, the producer could not end anything.
    driver.pass_ms(TIMEOUT_MS - 1)
    assert driver.stored().state is S.ONGOING
    driver.end(who)

    driver = driver.failover()

    assert driver.events == [MarkersDue(ID)]
    assert driver.prepared() == driver.stored()
    driver.complete()
    assert driver.failover().events == []
    assert driver.failover().end(who) == ProducerGranted(producer(1_000, 1))


def test_what_was_completed_meanwhile_is_not_completed_again() -> None:
    driver = Driver()
    who = driver.begin()
    driver.add(who)
    driver.end(who)
    prepared = driver.stored()
    driver.complete()
    driver.add(producer(1_000, 1))
    stored = len(driver.log)

    assert driver.prepared() is None
    late = producer(prepared.producer_id, prepared.producer_epoch)
    driver.ask(CompleteTransaction, producer=late)
    assert len(driver.log) == stored
    driver.end(late)
    driver.ask(CompleteTransaction, producer=late)
    assert driver.stored().state is S.PREPARE_COMMIT


def test_an_id_that_nobody_used_for_long_is_forgotten() -> None:
    driver = Driver(TransactionOptions(id_expiration_ms=10 * HOUR_MS))
    driver.begin()
    driver.pass_ms(9 * HOUR_MS + 1)
    assert ID in driver.machine.image.transactions

    driver.pass_ms(HOUR_MS)

    assert driver.machine.image.transactions == {}
    assert driver.failover().machine.image.transactions == {}
    assert driver.begin() == producer(1_001, 0)


def test_an_open_transaction_is_never_forgotten() -> None:
    driver = Driver(TransactionOptions(id_expiration_ms=1, timeout_ms_max=2**31))
    who = driver.begin(timeout_ms=2**31)
    driver.add(who)

    driver.pass_ms(20 * HOUR_MS)

    assert driver.stored().state is S.ONGOING


def test_a_check_takes_a_bounded_part_of_the_ids_at_a_time() -> None:
    options = TransactionOptions(id_expiration_ms=1, checked_per_turn_max=10)
    driver = Driver(options)
    for number in range(25):
        driver.begin(transactional_id=f"id-{number}")
    driver.now_ms += HOUR_MS

    sizes = []
    while driver.machine.image.transactions:
        outcome = driver.machine.expire(driver.now)
        driver._take(outcome)
        sizes.append(len(outcome.facts))

    assert sizes == [10, 10, 5]


def test_transactions_are_listed_by_state_producer_and_duration() -> None:
    driver = Driver()
    first = driver.begin(transactional_id="first")
    second = driver.begin(transactional_id="second")
    driver.begin(transactional_id="third")
    driver.ask(AddPartitions, transactional_id="first", producer=first, partitions=(at("t"),))
    driver.now_ms += 5_000
    driver.ask(AddPartitions, transactional_id="second", producer=second, partitions=(at("t"),))

    def listed(**filters: Any) -> list[str]:
        outcome = driver.machine.decide(ListTransactions(on_reply=ignore, **filters), driver.now)
        ((_, reply),) = outcome.responses
        assert isinstance(reply, ListedTransactions)
        return [known.transactional_id for known in reply.transactions]

    assert listed() == ["first", "second", "third"]
    assert listed(states=(S.ONGOING,)) == ["first", "second"]
    assert listed(states=(S.EMPTY, S.DEAD)) == ["third"]
    assert listed(producer_ids=(1_001,)) == ["second"]
    assert listed(states=(S.ONGOING,), duration_ms_min=4_999) == ["first"]
    assert listed(states=(S.ONGOING,), duration_ms_min=5_000) == []


def test_a_transaction_is_described() -> None:
    driver = Driver()
    driver.begin()

    reply = driver.ask(DescribeTransaction)

    assert isinstance(reply, DescribedTransaction)
    assert (reply.transaction.state, reply.transaction.updated_at) == (S.EMPTY, WALL_START_MS)
    assert kind(driver.ask(DescribeTransaction, transactional_id="x")) is ErrorKind.UNKNOWN_TRANSACTIONAL_ID


def test_ids_have_room_up_to_their_bytes_and_those_that_nobody_used_give_theirs() -> None:
    driver = Driver(TransactionOptions(ids_bytes_max=5 * bytes_of(ID)))
    driver.run(driver.begin())
    for number in range(1, 5):
        driver.begin(transactional_id=f"{ID[:-1]}{number}")

    refused = driver.init(transactional_id=f"{ID[:-1]}5")
    driver.pass_ms(60_000)
    driver.begin(transactional_id=f"{ID[:-1]}5")

    assert kind(refused) is ErrorKind.ACCESS_LIMIT
    assert list(driver.machine.image.transactions) == [ID, *(f"{ID[:-1]}{number}" for number in range(2, 6))]
    assert driver.machine.image.id_bytes == 5 * bytes_of(ID)


def test_what_ids_take_is_known_to_the_next_coordinator() -> None:
    driver = Driver(TransactionOptions(ids_bytes_max=2 * bytes_of("id-0")))
    for name in ("id-0", "id-0", "id-1"):
        driver.begin(transactional_id=name)

    refused = driver.failover().init(transactional_id="id-2")

    assert kind(refused) is ErrorKind.ACCESS_LIMIT
