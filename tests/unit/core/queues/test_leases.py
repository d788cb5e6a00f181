"""Leases: who has which record, until when, and what a receipt is good for."""

from typing import Any

import pytest

from penstock.core.model import ApiError, ErrorKind, LeaderEpoch, Offset
from penstock.core.queues import (
    AcknowledgeRecords,
    LeaseClaim,
    LeasesExpired,
    PauseQueue,
    QueueOk,
    QueueSettings,
    RecordsAcquired,
    RecordsReady,
    RejectRecords,
    RenewLeases,
    ResetQueue,
    ReturnRecords,
)
from tests.unit.core.queues.queue_driver import LEASE_MS, QUEUE, Driver, ignore, offsets_of, producer, ready

STALE = ErrorKind.INVALID_RECORD_STATE


def test_a_record_is_leased_to_one_consumer_at_a_time() -> None:
    driver = ready(records=3)

    first, second = driver.acquired(2, "a"), driver.acquired(2, "b")

    assert offsets_of(first) == [0, 1]
    assert offsets_of(second) == [2]
    assert driver.acquired(2, "c") == []


def test_what_is_acknowledged_is_never_delivered_again() -> None:
    driver = ready(records=2)
    claims = driver.acquired()

    assert driver.acknowledge(*claims) == [None, None]

    driver.pass_ms(10 * LEASE_MS)
    assert driver.acquired() == []
    assert driver.describe().finished_below == 2


def test_a_lease_that_ends_makes_the_record_available_and_its_receipt_stale() -> None:
    driver = ready(records=1)
    (late,) = driver.acquired(consumer="a")

    driver.pass_ms(LEASE_MS - 1)
    assert driver.acquired(consumer="b") == []
    driver.pass_ms(1)
    (again,) = driver.acquired(consumer="b")

    assert again.attempt == 2
    assert LeasesExpired(QUEUE, 1) in driver.events
    assert driver.acknowledge(late) == [STALE]
    assert driver.acknowledge(again) == [None]


@pytest.mark.parametrize(
    "forged",
    [
        LeaseClaim(Offset(0), 1, 5),
        LeaseClaim(Offset(0), 2, 101),
        LeaseClaim(Offset(1), 1, 101),
        LeaseClaim(Offset(0), None, 5),
        LeaseClaim(Offset(0), None, None),
    ],
)
def test_only_the_receipt_of_the_delivery_counts(forged: LeaseClaim) -> None:
    driver = ready(records=1)
    assert driver.acquired() == [LeaseClaim(Offset(0), 1, 101)]

    assert driver.acknowledge(forged) == [STALE]
    assert driver.describe().leased == 1


def test_a_lease_that_did_not_reach_its_consumer_does_not_count() -> None:
    driver = ready(records=1)
    (lost,) = driver.acquired(consumer="a")

    assert driver.settle(ReturnRecords, [lost]) == [None]

    assert RecordsReady(QUEUE) in driver.events
    for machine in (driver, driver.failover()):
        (record,) = machine.machine.queues[QUEUE].entries.values()
        assert (record.attempts, record.lease, record.failure) == (0, None, None)
    (again,) = driver.acquired(consumer="b")
    assert again.attempt == 1
    assert driver.acknowledge(lost, again) == [STALE, None]


def test_a_receipt_counts_once() -> None:
    driver = ready(records=1)
    (claim,) = driver.acquired()

    assert driver.acknowledge(claim, claim) == [None, STALE]
    assert driver.acknowledge(claim) == [STALE]


def test_a_share_consumer_is_known_by_its_name() -> None:
    driver = ready(records=1)
    driver.acquired(consumer="a")

    assert driver.acknowledge(LeaseClaim(Offset(0)), consumer="b") == [STALE]
    assert driver.acknowledge(LeaseClaim(Offset(0)), consumer="a") == [None]


def test_a_renewed_lease_counts_from_the_renewal() -> None:
    driver = ready(records=2)
    renewed, other = driver.acquired()

    driver.pass_ms(LEASE_MS - 1)
    assert driver.settle(RenewLeases, [renewed]) == [None]
    driver.pass_ms(LEASE_MS - 1)

    assert offsets_of(driver.acquired()) == [other.offset]
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [renewed.offset]


def test_leases_of_one_acquisition_end_each_at_its_own_time() -> None:
    driver = ready(records=2)
    _, renewed = driver.acquired()
    driver.pass_ms(10)
    driver.settle(RenewLeases, [renewed])

    driver.pass_ms(LEASE_MS - 10)
    assert offsets_of(driver.acquired()) == [0]
    driver.pass_ms(9)
    assert driver.acquired() == []
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [renewed.offset]


def test_a_renewal_may_change_the_duration_and_a_new_leader_knows() -> None:
    driver = ready(records=2)
    longer, shorter = driver.acquired()
    driver.settle(RenewLeases, [longer], lease_ms=2 * LEASE_MS)
    driver.settle(RenewLeases, [shorter], lease_ms=1_000)

    driver.pass_ms(1_000)
    assert offsets_of(driver.acquired(lease_ms=10 * LEASE_MS)) == [shorter.offset]
    driver = driver.failover()
    driver.pass_ms(2 * LEASE_MS - 1)
    assert driver.acquired() == []
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [longer.offset]


def test_a_new_leader_counts_leases_in_full_and_takes_their_receipts() -> None:
    driver = ready(records=2)
    kept, lost = driver.acquired()
    driver.pass_ms(LEASE_MS - 1)

    driver = driver.failover()

    driver.pass_ms(LEASE_MS - 1)
    assert driver.acquired() == []
    assert driver.acknowledge(kept) == [None]
    driver.pass_ms(1)
    assert driver.acquired()[0][:2] == (lost.offset, 2)


def test_what_a_lost_consumer_held_is_available_at_once() -> None:
    driver = ready(records=3)
    driver.acquired(2, "a")
    driver.acquired(1, "b")

    assert driver.lose("a") == QueueOk()

    again = driver.acquired(consumer="c")
    assert [(claim.offset, claim.attempt) for claim in again] == [(0, 2), (1, 2)]


def test_a_late_release_leaves_the_leases_that_a_consumer_has_got_since() -> None:
    driver = ready(records=3)
    driver.acquired(1, "a")
    before = driver.leases_of("a")
    driver.acquired(1, "a")

    driver.lose("a", before)

    assert offsets_of(driver.acquired(consumer="c")) == [0, 2]
    assert len(driver.leases_of("a")) == 1


def test_a_release_does_not_touch_leases_of_others() -> None:
    driver = ready(records=2)
    driver.acquired(1, "a")
    driver.acquired(1, "b")

    driver.lose("a", driver.leases_of("b"))

    assert driver.acquired(consumer="c") == []


def test_a_paused_queue_delivers_nothing_and_lets_leases_end() -> None:
    driver = ready(records=2)
    (claim,) = driver.acquired(1)
    driver.ask(PauseQueue(on_reply=ignore, queue=QUEUE, is_paused=True))
    driver = driver.failover()

    reply = driver.acquire()
    assert isinstance(reply, RecordsAcquired)
    assert reply.is_paused
    assert reply.records == ()
    assert driver.acknowledge(claim) == [None]
    driver.ask(PauseQueue(on_reply=ignore, queue=QUEUE, is_paused=False))
    assert offsets_of(driver.acquired()) == [1]


def test_an_acknowledgement_in_a_transaction_counts_when_that_is_committed() -> None:
    driver = ready(records=2)
    done, undone = driver.acquired()
    driver.acknowledge(done, producer=producer(5))
    driver.acknowledge(undone, producer=producer(6))
    driver = driver.failover()

    # No lease ends while the transaction is open, and nobody else decides.
    driver.pass_ms(10 * LEASE_MS)
    assert driver.acquired() == []
    assert driver.acknowledge(done) == [ErrorKind.CONCURRENT_TRANSACTIONS]
    driver.end_transaction(5, is_commit=True)
    driver.end_transaction(6, is_commit=False)

    assert driver.describe().finished_below == undone.offset
    driver.pass_ms(LEASE_MS - 1)
    assert driver.acquired() == []
    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [undone.offset]


def test_a_rewritten_log_keeps_what_a_transaction_decides() -> None:
    driver = ready(records=2)
    claims = driver.acquired()
    driver.acknowledge(*claims, producer=producer(5))
    driver.rewrite()

    driver = driver.failover()
    driver.end_transaction(5, is_commit=True)

    assert driver.describe().finished_below == 2


def test_a_rewrite_of_the_log_changes_no_deadline() -> None:
    driver = ready(records=2)
    _, delayed = driver.acquired()
    driver.release(delayed, delay_ms=LEASE_MS)
    driver.pass_ms(LEASE_MS - 1)
    assert driver.acquired() == []

    driver.rewrite()

    driver.pass_ms(1)
    assert offsets_of(driver.acquired()) == [0, 1]


def test_a_token_is_used_once() -> None:
    driver = ready(records=2)
    driver.acquired(1)

    driver.tokens -= 1
    reply = driver.acquire(1)

    assert isinstance(reply, ApiError)
    assert "token" in reply.detail


def test_a_leader_that_was_replaced_is_refused() -> None:
    driver = ready(records=2)
    driver.epoch = LeaderEpoch(2)
    assert driver.acquire().kind is ErrorKind.UNKNOWN_LEADER_EPOCH
    driver.open()
    assert offsets_of(driver.acquired(1)) == [0]

    driver.epoch = LeaderEpoch(1)

    for reply in (driver.open(), driver.offer(2, 4), driver.acquire()):
        assert isinstance(reply, ApiError)
        assert reply.kind is ErrorKind.FENCED_LEADER_EPOCH


def test_offsets_that_the_log_lost_are_not_finished() -> None:
    driver = ready(records=5)
    driver.acknowledge(*driver.acquired(5))
    driver.epoch = LeaderEpoch(2)

    reply = driver.open(log_end=3)

    assert reply.demand.next_offset == 3
    driver.offer(3, 5)
    assert offsets_of(driver.acquired()) == [3, 4]


def test_what_was_not_finished_of_lost_offsets_is_forgotten() -> None:
    driver = ready(records=5)
    claims = driver.acquired(4)
    driver.epoch = LeaderEpoch(2)

    driver.open(log_end=3)

    assert driver.acknowledge(*claims) == [None, None, None, STALE]
    assert driver.describe().finished_below == 3
    driver.offer(3, 4)
    assert [(claim.offset, claim.attempt) for claim in driver.acquired()] == [(3, 1)]


def test_offsets_that_the_log_lost_and_got_again_are_not_finished() -> None:
    driver = ready(records=5)
    driver.acknowledge(*driver.acquired(5))
    driver.epoch = LeaderEpoch(3)

    # An unclean election began epoch 2 at offset 3; the log has grown since, and another leader opens.
    reply = driver.open(log_end=9, epochs={1: 0, 2: 3, 3: 8})

    assert reply.demand.next_offset == 3
    driver.offer(3, 5)
    assert offsets_of(driver.acquired()) == [3, 4]


def test_an_opening_that_arrives_late_takes_nothing_back() -> None:
    driver = ready(records=5)
    claims = driver.acquired(5)

    # Sent before the log had these records, and overtaken by offers of the same leader.
    reply = driver.open(log_end=3)

    assert reply.demand.next_offset == 5
    assert driver.acknowledge(*claims) == [None] * 5


def test_offsets_that_the_log_has_deleted_are_dropped() -> None:
    driver = ready(records=5)
    driver.acquired(2)

    reply = driver.open(log_start=3)

    assert reply.demand.next_offset == 5
    assert offsets_of(driver.acquired()) == [3, 4]
    assert driver.open(log_start=9).demand.next_offset == 9
    assert driver.describe().finished_below == 9


def test_a_reset_begins_again() -> None:
    driver = ready(records=3)
    (claim, *_) = driver.acquired()

    driver.ask(ResetQueue(on_reply=ignore, queue=QUEUE, offset=Offset(1)))

    assert driver.acknowledge(claim) == [STALE]
    driver.offer(1, 3)
    assert offsets_of(driver.acquired()) == [1, 2]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"consumer": ""}, "consumer"),
        ({"consumer": "x" * 300}, "consumer"),
        ({"records_max": 0}, "at least one"),
        ({"lease_ms": 0}, "lease"),
        ({"lease_ms": 2**40}, "lease"),
    ],
)
def test_an_acquisition_that_makes_no_sense_gets_one_clear_error(
    fields: dict[str, object], word: str
) -> None:
    driver = ready(records=1)

    reply = driver.acquire(**fields)  # type: ignore[arg-type]

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.INVALID_REQUEST
    assert word in reply.detail


def test_a_queue_has_to_be_opened_with_settings_that_make_sense() -> None:
    driver = Driver()
    assert driver.acquire().kind is ErrorKind.UNKNOWN_GROUP

    for settings in (
        QueueSettings(deliveries_max=0),
        QueueSettings(deliveries_max=70_000),
        QueueSettings(lease_ms=0),
        QueueSettings(backoff_ms=10, backoff_ms_max=5),
    ):
        assert driver.open(settings).kind is ErrorKind.INVALID_REQUEST


def test_claims_that_make_no_sense_get_one_clear_error() -> None:
    driver = ready(records=1, claims_max=2)
    (claim,) = driver.acquired()

    for command, fields in (
        (RenewLeases, {"lease_ms": 0}),
        (RejectRecords, {"claims": (claim,) * 3}),
    ):
        given: dict[str, Any] = {"on_reply": ignore, "queue": QUEUE, "claims": (claim,)} | fields
        reply = driver.ask(command(**given))
        assert isinstance(reply, ApiError)
        assert reply.kind is ErrorKind.INVALID_REQUEST
    assert driver.describe().leased == 1


def test_a_queue_tells_its_leader_what_to_offer() -> None:
    driver = Driver()
    opened = driver.open(log_start=4, log_end=100)
    assert opened.demand == (4, 1_000)

    # A gap would be taken for finished.
    assert driver.offer(5, 8).demand.next_offset == 4
    assert driver.offer(0, 8).demand == (8, 996)

    reply = driver.acquire(3)
    assert [record.offset for record in reply.records] == [4, 5, 6]
    assert reply.demand == (8, 999)


def test_a_claim_about_several_records_is_one_about_each() -> None:
    driver = ready(records=6)
    first, *_ = driver.acquired(4)
    driver.release(first._replace(offset=Offset(1)), delay_ms=0)
    (again,) = driver.acquired(1)

    assert again.offset == 1
    assert driver.acknowledge(first._replace(records=5)) == [None, STALE, None, None, STALE]
    assert driver.describe().leased == 1
    assert driver.acknowledge(again, again) == [None, STALE]
    assert driver.describe().finished_below == 4


def test_claims_count_by_their_records() -> None:
    driver = ready(records=3, claims_max=3)
    first, *_ = driver.acquired(3)

    refused = driver.ask(
        AcknowledgeRecords(on_reply=ignore, queue=QUEUE, claims=(first, first._replace(records=3)))
    )

    assert isinstance(refused, ApiError)
    assert driver.acknowledge(first._replace(records=3)) == [None] * 3
