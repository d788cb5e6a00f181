"""Deliveries that fail: attempts, backoff, and records that are given up."""

from typing import Any

import pytest

from penstock.core.model import ErrorKind, Offset
from penstock.core.queues import (
    CONSUMER_LOST,
    LEASE_ENDED,
    REJECTED,
    ClaimResults,
    DeadLettersDue,
    FinishMoves,
    QueueSettings,
    RejectRecords,
    backoff_ms,
)
from tests.unit.core.queues.queue_driver import (
    LEASE_MS,
    QUEUE,
    WALL_START_MS,
    Driver,
    ignore,
    offsets_of,
    producer,
    ready,
)


def finish_moves(driver: Driver, *offsets: int, **fields: Any) -> list[ErrorKind | None]:
    moved = tuple(Offset(offset) for offset in offsets)
    reply = driver.ask(FinishMoves(on_reply=ignore, queue=QUEUE, offsets=moved, **fields))
    assert isinstance(reply, ClaimResults)
    return list(reply.errors)


def fail_by_release(driver: Driver) -> None:
    driver.release(*driver.acquired(), delay_ms=0)


def fail_by_silence(driver: Driver) -> None:
    driver.acquired()
    driver.pass_ms(LEASE_MS)


def fail_by_loss(driver: Driver) -> None:
    driver.acquired(consumer="a")
    driver.lose("a")


@pytest.mark.parametrize("fail", [fail_by_release, fail_by_silence, fail_by_loss])
@pytest.mark.parametrize("with_failovers", [False, True])
def test_a_record_is_given_up_when_its_fourth_delivery_has_failed(fail: Any, with_failovers: bool) -> None:
    driver = ready(records=1)

    for attempt in range(1, 5):
        assert driver.dead_letters().records == ()
        assert driver.describe().ready == 1, attempt
        fail(driver)
        driver = driver.failover() if with_failovers else driver

    (letter,) = driver.dead_letters().records
    assert (letter.offset, letter.attempts) == (0, 4)
    assert DeadLettersDue(QUEUE) in driver.events
    assert driver.acquired() == []


def test_a_dead_letter_says_when_and_why_it_failed() -> None:
    driver = ready(QueueSettings(deliveries_max=2), records=1)
    driver.release(*driver.acquired(), delay_ms=0, reason="no such customer")
    driver.pass_ms(500)
    driver.acquired()
    driver.pass_ms(LEASE_MS)

    (letter,) = driver.dead_letters().records

    assert letter.failure == (WALL_START_MS, WALL_START_MS + 500 + LEASE_MS, LEASE_ENDED)


def test_a_move_is_finished_once() -> None:
    driver = ready(QueueSettings(deliveries_max=1), records=2)
    driver.release(*driver.acquired())

    assert finish_moves(driver, 0) == [None]
    assert finish_moves(driver, 0, 1) == [ErrorKind.INVALID_RECORD_STATE, None]
    assert driver.describe().finished_below == 2


def test_a_move_in_a_transaction_that_is_aborted_is_due_again() -> None:
    driver = ready(QueueSettings(deliveries_max=1), records=1)
    driver.release(*driver.acquired())
    assert finish_moves(driver, 0, producer=producer(9)) == [None]
    assert driver.dead_letters().records == ()
    assert driver.describe().moving == 1

    driver = driver.failover()
    assert driver.events == []
    driver.end_transaction(9, is_commit=False)
    driver.pass_ms(0)
    assert DeadLettersDue(QUEUE) in driver.events
    assert [letter.offset for letter in driver.dead_letters().records] == [0]

    finish_moves(driver, 0, producer=producer(9))
    driver.end_transaction(9, is_commit=True)
    assert driver.describe().finished_below == 1


def test_a_new_leader_goes_on_with_moves() -> None:
    driver = ready(QueueSettings(deliveries_max=1), records=1)
    driver.release(*driver.acquired())

    driver = driver.failover()

    assert driver.events == [DeadLettersDue(QUEUE)]


def test_a_rejected_record_is_given_up_at_once() -> None:
    driver = ready(records=1)

    driver.settle(RejectRecords, driver.acquired())

    (letter,) = driver.dead_letters().records
    assert (letter.attempts, letter.failure.reason) == (1, REJECTED)


def test_without_dead_letters_a_record_that_is_given_up_is_finished() -> None:
    driver = ready(QueueSettings(deliveries_max=1, has_dead_letters=False), records=1)

    driver.release(*driver.acquired())

    assert driver.dead_letters().records == ()
    assert driver.describe().finished_below == 1


def test_a_released_record_comes_back_after_the_delay_and_never_earlier() -> None:
    driver = ready(records=2)
    later, now = driver.acquired()
    driver.release(later, delay_ms=700)
    driver.release(now, delay_ms=0)

    assert offsets_of(driver.acquired()) == [now.offset]
    driver.pass_ms(699)
    assert driver.acquired() == []
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [later.offset]


def test_a_new_leader_counts_delays_in_full() -> None:
    driver = ready(records=1)
    driver.release(*driver.acquired(), delay_ms=700)
    driver.pass_ms(699)

    driver = driver.failover()

    driver.pass_ms(699)
    assert driver.acquired() == []
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [0]


def test_backoff_doubles_up_to_its_limit_and_spreads() -> None:
    settings = QueueSettings(backoff_ms=1_000, backoff_ms_max=5_000)

    for attempts, full in ((1, 1_000), (2, 2_000), (3, 4_000), (4, 5_000), (400, 5_000)):
        drawn = [backoff_ms(settings, attempts, jitter) for jitter in range(1_000)]
        assert full / 2 <= min(drawn) < 0.55 * full
        assert 0.95 * full < max(drawn) <= full


def test_records_that_fail_together_come_back_one_after_the_other() -> None:
    driver = ready(records=20)

    driver.release(*driver.acquired(20), jitter=12345)

    delays = [driver.machine.queues[QUEUE].entries[Offset(offset)].delay_ms for offset in range(20)]
    assert len(set(delays)) > 15
    assert all(500 <= delay <= 1_000 for delay in delays)


def test_a_lost_consumer_is_named_as_the_reason() -> None:
    driver = ready(QueueSettings(deliveries_max=1), records=1)

    fail_by_loss(driver)

    assert driver.dead_letters().records[0].failure.reason == CONSUMER_LOST


def test_many_leases_that_end_together_end_in_turns() -> None:
    driver = ready(records=10, expired_per_turn_max=3)
    driver.acquired(5, "a")
    driver.acquired(5, "b")

    driver.now_ms = LEASE_MS
    turns = 0
    while (deadline := driver.machine.next_deadline()) is not None and deadline <= driver.now.instant:
        driver.take(driver.machine.expire(driver.now))
        turns += 1

    assert turns == 4
    assert driver.describe().ready == 10
