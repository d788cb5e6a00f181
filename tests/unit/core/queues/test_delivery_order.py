"""What is delivered next: keys, priorities, delays, times to live, and how much a queue holds."""

import pytest

from penstock.core.model import ApiError, ErrorKind, Offset, Timestamp
from penstock.core.queues import (
    OfferRecords,
    QueueOptions,
    QueueRecord,
    QueueSettings,
    RecordsExpired,
    RecordsReady,
    RejectRecords,
    ResetQueue,
    Run,
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

ORDERED = QueueSettings(is_key_ordered=True)


def record(
    offset: int, key: int | None = None, priority: int = 0, deliver_at: int = -1, expires_at: int = -1
) -> QueueRecord:
    times = [Timestamp(at if at < 0 else WALL_START_MS + at) for at in (deliver_at, expires_at)]
    return QueueRecord(Offset(offset), key, priority, *times)


def opened(*records: QueueRecord, settings: QueueSettings | None = None) -> Driver:
    driver = Driver()
    driver.open(settings)
    if records:
        driver.offer_records(records)
    return driver


def keyed(*keys: int | None) -> Driver:
    records = [record(offset, key) for offset, key in enumerate(keys)]
    return opened(*records, settings=ORDERED)


@pytest.mark.parametrize(
    "unfit",
    [
        QueueRecord(Offset(1), expires_at=Timestamp(2**63)),
        QueueRecord(Offset(1), deliver_at=Timestamp(2**64)),
        QueueRecord(Offset(1), key=-(2**63) - 1),
        QueueRecord(Offset(1), priority=1_000),
    ],
)
def test_an_offer_that_does_not_fit_the_log_is_refused(unfit: QueueRecord) -> None:
    driver = opened(record(0))

    reply = driver.offer_records([unfit])

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.INVALID_REQUEST
    assert offsets_of(driver.acquired()) == [0]


def test_no_two_records_of_a_key_are_leased_at_the_same_time() -> None:
    driver = keyed(1, 1, 2, None, 1, None)

    first = driver.acquired()
    assert offsets_of(first) == [0, 2, 3, 5]
    assert driver.acquired() == []
    assert driver.describe().blocked == 2

    driver.acknowledge(*first)
    (second,) = driver.acquired()
    assert second.offset == 1
    driver.acknowledge(second)
    assert offsets_of(driver.acquired()) == [4]


def test_the_order_of_a_key_survives_failures_and_failovers() -> None:
    driver = keyed(1, 1, 1)
    driver.release(*driver.acquired(), delay_ms=500)

    assert driver.acquired() == []
    driver = driver.failover()
    assert driver.acquired() == []
    driver.pass_ms(500)
    (again,) = driver.acquired()
    assert again.offset == 0
    driver.pass_ms(LEASE_MS)
    assert offsets_of(driver.acquired()) == [0]


def test_a_record_that_is_given_up_holds_its_key_up_no_longer() -> None:
    driver = keyed(1, 1)

    driver.settle(RejectRecords, driver.acquired())

    assert offsets_of(driver.acquired()) == [1]
    driver = driver.failover()
    driver.pass_ms(LEASE_MS)
    assert offsets_of(driver.acquired()) == [1]


def test_a_delayed_record_holds_back_what_follows_it_in_its_key() -> None:
    driver = opened(record(0, 1, deliver_at=1_000), record(1, 1), record(2, 2), settings=ORDERED)

    assert offsets_of(driver.acquired()) == [2]
    driver.pass_ms(1_000)
    assert offsets_of(driver.acquired()) == [0]


def test_without_key_order_keys_do_not_matter() -> None:
    driver = opened(record(0, 1), record(1, 1))
    assert offsets_of(driver.acquired(1)) == [0]

    driver.open(ORDERED)

    # From now on they do: the record before is still leased.
    assert driver.acquired() == []
    driver.open()
    assert offsets_of(driver.acquired()) == [1]


def test_chosen_records_are_leased_wherever_they_are_and_once() -> None:
    driver = ready(records=6)

    chosen = driver.acquired(offsets=[4, 2, 2, 17])
    assert offsets_of(chosen) == [2, 4] or offsets_of(chosen) == [4, 2]
    assert driver.acquired(offsets=[2, 4]) == []
    assert offsets_of(driver.acquired()) == [0, 1, 3, 5]

    driver.release(*chosen, delay_ms=0)
    assert offsets_of(driver.acquired()) == [2, 4]


def test_of_chosen_records_so_many_are_leased_as_are_ready() -> None:
    driver = ready(records=5)

    assert offsets_of(driver.acquired(2, offsets=range(5))) == [0, 1]
    assert offsets_of(driver.acquired(2, offsets=range(5))) == [2, 3]
    assert offsets_of(driver.acquired(2, offsets=range(5))) == [4]


def test_chosen_records_that_come_back_again_and_again_leave_nothing_behind() -> None:
    driver = ready(QueueSettings(deliveries_max=1_000), records=2)
    for _ in range(200):
        driver.release(*driver.acquired(offsets=[1]), delay_ms=0)

    order = driver.machine.queues[QUEUE].order
    assert order is not None
    assert len(order._heap) < 100
    assert offsets_of(driver.acquired()) == [0, 1]


def test_a_queue_asks_for_chosen_records_beyond_its_look_ahead() -> None:
    driver = ready(records=3, look_ahead=3, window_max=8)
    assert driver.acquire(1, offsets=[1]).demand.records == 1

    assert driver.acquire(offsets=[7]).demand == (3, 5)
    driver.offer(3, 8)
    assert offsets_of(driver.acquired(offsets=[7])) == [7]


def test_the_highest_priority_comes_first_then_the_order_of_the_log() -> None:
    driver = opened(record(0), record(1, priority=9), record(2, priority=5), record(3, priority=9))

    assert offsets_of(driver.acquired(3)) == [1, 3, 2]
    assert offsets_of(driver.acquired()) == [0]


def test_a_record_is_delivered_when_it_is_due_by_the_wall_clock_and_never_earlier() -> None:
    driver = opened(record(0, deliver_at=5_000), record(1))
    assert offsets_of(driver.acquired()) == [1]

    driver.pass_ms(4_999)
    assert driver.acquired() == []
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [0]


def test_a_wall_clock_that_is_set_back_delays_and_one_that_is_set_forward_is_noticed() -> None:
    driver = opened(record(0, deliver_at=5_000), record(1, deliver_at=3_600_000))

    driver.wall_skew_ms = -10_000
    driver.pass_ms(14_999)
    assert driver.acquired() == []
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [0]
    driver.wall_skew_ms = 3_600_000
    driver.pass_ms(1_000)
    assert offsets_of(driver.acquired()) == [1]


def test_a_delay_survives_a_failover() -> None:
    driver = opened(record(0, deliver_at=5_000))
    driver.pass_ms(4_000)

    driver = driver.failover()

    assert driver.describe().delayed == 1
    driver.pass_ms(1_000)
    assert offsets_of(driver.acquired()) == [0]


def test_a_record_is_not_delivered_after_its_time_to_live() -> None:
    driver = opened(record(0, expires_at=5_000), record(1, expires_at=5_001), record(2))
    driver.pass_ms(5_000)

    assert offsets_of(driver.acquired()) == [1, 2]
    assert RecordsExpired(QUEUE, 1) in driver.events
    assert driver.describe().finished_below == 1


def test_a_record_that_has_outlived_its_time_is_not_taken() -> None:
    driver = opened()
    driver.pass_ms(5_000)

    reply = driver.offer_records([record(0, expires_at=4_000), record(1)])

    assert reply.demand.next_offset == 2
    assert offsets_of(driver.acquired()) == [1]
    assert RecordsExpired(QUEUE, 1) in driver.events


def test_a_leased_record_does_not_expire_but_is_not_delivered_again() -> None:
    driver = opened(record(0, expires_at=1_000))
    (claim,) = driver.acquired()
    driver.pass_ms(2_000)
    driver.release(claim, delay_ms=0)

    assert driver.acquired() == []
    assert driver.describe().finished_below == 1


def test_a_queue_holds_no_more_than_its_window() -> None:
    driver = ready(records=100, window_max=10)

    assert driver.describe().ready == 10
    assert driver.describe().stored.end == 10
    claims = driver.acquired(4)
    assert driver.offer(10, 100).demand == (10, 0)
    driver.acknowledge(*claims)
    assert driver.offer(10, 100).demand.next_offset == 14


def test_delayed_records_leave_the_window_and_have_a_limit_of_their_own() -> None:
    driver = Driver(QueueOptions(window_max=2, delayed_max=3))
    driver.open()
    delayed = [record(offset, deliver_at=60_000) for offset in range(9)]

    driver.offer_records([*delayed[:4], record(4), record(5), record(6)])

    description = driver.describe()
    assert (description.delayed, description.ready, description.stored.end) == (4, 1, 5)
    driver.acknowledge(*driver.acquired())
    driver.offer_records(delayed[5:])
    assert driver.describe().stored.end == 6
    driver.pass_ms(60_000)
    # More than the window are ready now: nothing is taken until they are finished.
    assert driver.describe().ready == 5
    assert driver.offer(6, 9).demand == (6, 0)


def test_a_slow_record_does_not_hold_up_the_others() -> None:
    driver = ready(records=10, window_max=4)
    (slow, *_) = driver.acquired(1, lease_ms=10 * LEASE_MS)

    for start in range(4, 400, 3):
        driver.acknowledge(*driver.acquired(3))
        driver.offer(start, start + 3)

    description = driver.describe()
    assert description.finished_below == slow.offset
    assert description.stored.end > 390


def test_offsets_without_a_record_are_finished() -> None:
    driver = opened()
    plain = (Run(Offset(0), Offset(2)), Run(Offset(5), Offset(6)))
    offer = OfferRecords(
        on_reply=ignore,
        queue=QUEUE,
        leader_epoch=driver.epoch,
        start=Offset(0),
        end=Offset(9),
        plain=plain,
        records=(record(3, priority=1),),
    )

    driver.ask(offer)

    assert offsets_of(driver.acquired()) == [3, 0, 1, 5]
    assert driver.describe().stored.end == 9


def ready_events(driver: Driver) -> int:
    events, driver.events = driver.events, []
    return events.count(RecordsReady(QUEUE))


def test_whoever_waits_is_told_when_records_are_ready() -> None:
    driver = opened(record(0, deliver_at=1_000), record(1), record(2))
    assert ready_events(driver) == 0

    driver.pass_ms(1_000)
    assert ready_events(driver) == 1
    first, second, third = driver.acquired()
    driver.release(first, delay_ms=500)
    assert ready_events(driver) == 0
    driver.pass_ms(500)
    assert ready_events(driver) == 1
    driver.release(second, delay_ms=0)
    assert ready_events(driver) == 1
    driver.acknowledge(third)
    assert ready_events(driver) == 0
    driver.acquired()
    driver.pass_ms(LEASE_MS)
    assert ready_events(driver) == 1


def test_whoever_waits_is_told_when_a_key_is_free() -> None:
    driver = keyed(1, 1, 1, 1)
    driver.acknowledge(*driver.acquired())
    assert ready_events(driver) == 1
    driver.settle(RejectRecords, driver.acquired())
    assert ready_events(driver) == 1

    driver.acknowledge(*driver.acquired(), producer=producer(5))
    assert ready_events(driver) == 0
    driver.end_transaction(5, is_commit=True)
    driver.pass_ms(0)
    assert ready_events(driver) == 1
    assert offsets_of(driver.acquired()) == [3]


def test_records_without_attributes_have_their_place_among_the_others() -> None:
    driver = opened()
    driver.offer(0, 4)
    driver.offer_records([record(4, priority=1), record(5)])
    driver.offer(6, 8)

    first = driver.acquired(3)
    driver.release(*first, delay_ms=0)

    assert offsets_of(first) == [4, 0, 1]
    assert offsets_of(driver.acquired()) == [4, 0, 1, 2, 3, 5, 6, 7]


def test_a_queue_that_is_set_back_delivers_in_the_order_of_the_log_again() -> None:
    driver = ready(records=6)
    driver.acquired(2)
    driver.ask(ResetQueue(on_reply=ignore, queue=QUEUE, offset=Offset(1)))

    driver.offer(1, 5)
    first = driver.acquired(2)
    driver.offer(5, 8)

    assert offsets_of(first) == [1, 2]
    assert offsets_of(driver.acquired()) == [3, 4, 5, 6, 7]
    assert driver.acquired() == []
