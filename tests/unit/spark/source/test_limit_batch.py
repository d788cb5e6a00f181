"""How much goes into a batch."""

from penstock.core.model import MILLISECOND, Instant
from penstock.spark.source.stream import TriggerDelay, backlog, limit_batch

A0, A1, A2 = ("a", 0), ("a", 1), ("a", 2)


def test_without_a_limit_everything_goes_in() -> None:
    assert limit_batch({A0: 0, A1: 5}, {A0: 10, A1: 5}, None) == {A0: 10, A1: 5}
    assert limit_batch({A0: 0, A1: 5}, {A0: 10, A1: 5}, 10) == {A0: 10, A1: 5}


def test_a_limit_is_shared_by_backlog() -> None:
    assert limit_batch({A0: 0, A1: 100, A2: 7}, {A0: 300, A1: 200, A2: 7}, 40) == {A0: 30, A1: 110, A2: 7}


def test_a_small_partition_beside_a_large_one_still_moves() -> None:
    assert limit_batch({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10) == {A0: 9, A1: 1}


def test_a_batch_never_goes_backwards() -> None:
    assert limit_batch({A0: 10, A1: 0}, {A0: 4, A1: 100}, 10) == {A0: 10, A1: 10}
    assert limit_batch({A0: 10}, {A0: 4}, None) == {A0: 10}
    assert backlog({A0: 10, A1: 0}, {A0: 4, A1: 100}) == 100


def test_few_records_wait_for_more_until_the_delay_is_over() -> None:
    hesitation = TriggerDelay(10, 1_000, Instant(0))

    assert hesitation.holds_back(9, Instant(999 * MILLISECOND))
    assert not hesitation.holds_back(9, Instant(1_000 * MILLISECOND))
    assert hesitation.holds_back(9, Instant(1_999 * MILLISECOND))


def test_enough_records_go_at_once_and_start_the_delay_anew() -> None:
    hesitation = TriggerDelay(10, 1_000, Instant(0))

    assert not hesitation.holds_back(10, Instant(900 * MILLISECOND))
    assert hesitation.holds_back(9, Instant(1_800 * MILLISECOND))


def test_nobody_waits_who_was_not_told_to() -> None:
    assert not TriggerDelay(None, 1_000, Instant(0)).holds_back(1, Instant(1))
