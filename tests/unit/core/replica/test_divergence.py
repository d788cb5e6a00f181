"""Logs that have parted, and where the follower cuts."""

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.replica import (
    DivergingEpoch,
    EpochStart,
    LeaderEpochHistory,
    diverging_epoch,
    truncation_offset,
)


def history(*starts: tuple[int, int]) -> LeaderEpochHistory:
    return LeaderEpochHistory(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in starts)


LEADER = history((1, 0), (2, 40), (4, 90))
LEADER_END = Offset(120)


def parting(position: int, last_epoch: int) -> DivergingEpoch | None:
    return diverging_epoch(LEADER, LEADER_END, Offset(position), LeaderEpoch(last_epoch))


def cut(follower: LeaderEpochHistory, log_end: int, epoch: int, end: int) -> int:
    return truncation_offset(follower, Offset(log_end), DivergingEpoch(LeaderEpoch(epoch), Offset(end)))


def test_a_beginning_of_the_leaders_log_is_none_of_its_business() -> None:
    assert parting(40, 1) is None
    assert parting(41, 2) is None
    assert parting(90, 2) is None
    assert parting(120, 4) is None


def test_an_empty_log_parts_from_nobody() -> None:
    assert parting(0, -1) is None


def test_a_longer_epoch_was_another_one_from_its_end_on() -> None:
    assert parting(95, 2) == (2, 90)
    assert parting(121, 4) == (4, 120)


def test_an_epoch_that_the_leader_never_had_is_answered_with_the_one_below() -> None:
    assert parting(100, 3) == (2, 90)


def test_an_epoch_of_the_future_is_not_in_the_leaders_log() -> None:
    assert parting(100, 9) == (4, 120)


def test_the_follower_cuts_where_the_shorter_of_both_epochs_ends() -> None:
    assert cut(history((1, 0), (2, 40)), 95, 2, 90) == 90
    assert cut(history((1, 0), (2, 40), (3, 60)), 80, 2, 90) == 60


def test_a_follower_that_never_had_the_epoch_cuts_behind_its_own_one_below() -> None:
    assert cut(history((1, 0), (3, 55)), 80, 2, 90) == 55
