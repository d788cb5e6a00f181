"""The checker of queues: members of share groups, pauses, and dead letters that are moved."""

import pytest

from penstock.core.model import MILLISECOND
from penstock.sim.checkers.queues import (
    PauseAttempt,
    QueueChecker,
    QueueDelivery,
    QueuePolicy,
    RedrivenPartition,
    SentRecord,
    SettleAction,
    Settlement,
    ShareMembership,
)

GROUP, PLACE, VALUE = "sharers", ("jobs", 0), b"v"
LEASE_MS = 1_000


def checker() -> QueueChecker:
    made = QueueChecker({GROUP: QueuePolicy(3, False, 0, 0)})
    made.sending(PLACE, VALUE, SentRecord())
    return made


def deliver(
    queues: QueueChecker, member: ShareMembership, at_ms: int, attempt: int = 1, consumer: str = "a"
) -> QueueDelivery:
    now = at_ms * MILLISECOND
    end = now + LEASE_MS * MILLISECOND
    delivery = QueueDelivery(
        GROUP, consumer, PLACE, 0, VALUE, attempt, now, now, lease_end=end, membership=member
    )
    queues.delivered(delivery, at_ms)
    return delivery


def member_until(ms: int) -> ShareMembership:
    return ShareMembership(sure_until=ms * MILLISECOND)


def test_what_a_member_has_is_given_to_nobody_else_while_it_is_one() -> None:
    queues = checker()
    deliver(queues, member_until(500), 0)

    deliver(queues, member_until(500), 400, attempt=2, consumer="b")

    assert [each.partition(":")[0] for each in queues.anomalies] == ["two live leases"]


@pytest.mark.parametrize("why", ["removed", "left", "ended its session"])
def test_what_a_member_had_that_is_gone_may_be_given_to_others(why: str) -> None:
    queues = checker()
    first = deliver(queues, member_until(300 if why == "removed" else 500), 0)
    assert first.membership is not None
    first.membership.is_over = why == "left"
    first.is_released = why == "ended its session"

    deliver(queues, member_until(500), 400, attempt=2, consumer="b")

    assert queues.anomalies == []


def test_a_member_that_is_back_has_what_it_got_since_though_it_was_removed_before() -> None:
    queues = checker()
    before, after = member_until(0), member_until(900)
    deliver(queues, before, 0)
    deliver(queues, after, 100, attempt=2)

    deliver(queues, member_until(900), 400, attempt=3, consumer="b")

    assert [each.partition(":")[0] for each in queues.anomalies] == ["two live leases"]


def test_a_lease_that_is_lost_though_its_consumer_is_a_member_is_an_anomaly() -> None:
    queues = checker()
    delivery = deliver(queues, member_until(900), 0)
    settlement = queues.settling(delivery, Settlement(SettleAction.ACKNOWLEDGE, MILLISECOND))

    queues.settled(delivery, settlement, 2 * MILLISECOND, granted=False)

    assert [each.partition(":")[0] for each in queues.anomalies] == ["lost lease"]


def test_an_acknowledgement_that_comes_late_counts_for_the_next_delivery_to_the_same_member() -> None:
    queues = checker()
    member = member_until(9_000)
    first = deliver(queues, member, 0)
    settlement = queues.settling(first, Settlement(SettleAction.ACKNOWLEDGE, MILLISECOND))
    second = deliver(queues, member, 1_500, attempt=2)

    queues.settled(first, settlement, 1_600 * MILLISECOND, granted=True)

    assert first.settlements == []
    assert second.settlements == [settlement]
    logs = {GROUP: {PLACE: [(0, VALUE)]}}
    assert queues.anomalies + queues.check(logs, (), {}, 2_000) == []


def test_an_acknowledgement_that_is_granted_after_somebody_else_has_the_record_is_an_anomaly() -> None:
    queues = checker()
    first = deliver(queues, member_until(100), 0)
    settlement = queues.settling(first, Settlement(SettleAction.ACKNOWLEDGE, MILLISECOND))
    deliver(queues, member_until(9_000), 1_500, attempt=2, consumer="b")

    queues.settled(first, settlement, 1_600 * MILLISECOND, granted=True)

    assert [each.partition(":")[0] for each in queues.anomalies] == ["lost lease"]


@pytest.mark.parametrize(("asked_ms", "anomalies"), [(90, []), (110, ["paused"])])
def test_what_is_asked_for_after_a_queue_was_paused_is_not_delivered(
    asked_ms: int, anomalies: list[str]
) -> None:
    queues = checker()
    queues.paused(queues.pausing(GROUP, PLACE, PauseAttempt(is_paused=True)), 100 * MILLISECOND)

    deliver(queues, member_until(900), asked_ms)

    assert [each.partition(":")[0] for each in queues.anomalies] == anomalies


@pytest.mark.parametrize("is_first", [True, False])
def test_a_queue_may_be_resumed_by_a_request_that_nobody_has_heard_of(is_first: bool) -> None:
    queues = checker()
    if is_first:
        queues.pausing(GROUP, PLACE, PauseAttempt(is_paused=False))
    queues.paused(queues.pausing(GROUP, PLACE, PauseAttempt(is_paused=True)), 100 * MILLISECOND)
    if not is_first:
        queues.pausing(GROUP, PLACE, PauseAttempt(is_paused=False))

    deliver(queues, member_until(900), 200)

    assert queues.anomalies == []


LETTERS = ("jobs.dlq", 0)
TWO = {3: b"x", 5: b"y"}


@pytest.mark.parametrize(
    ("finished", "moved", "anomalies"),
    [
        ([], [], 0),
        ([3], [b"x"], 0),
        ([3], [], 1),
        ([], [b"x"], 1),
        ([3], [b"x", b"x"], 1),
        ([3], [b"y"], 2),
    ],
)
def test_a_dead_letter_is_where_it_was_or_moved_once(
    finished: list[int], moved: list[bytes], anomalies: int
) -> None:
    found = checker().check_redriven(RedrivenPartition(LETTERS, TWO, finished, moved))

    assert [each.partition(":")[0] for each in found] == ["redriven"] * anomalies


def test_a_dead_letter_that_was_moved_is_not_there_any_more_and_not_moved_again() -> None:
    queues = checker()
    queues.told_redriven(LETTERS, 3)

    assert len(queues.check_redriven(RedrivenPartition(LETTERS, TWO, [], []))) == 1
    assert queues.anomalies == []
    queues.told_redriven(LETTERS, 3)
    assert len(queues.anomalies) == 1
