from penstock.core.model import LeaderEpoch, Offset
from penstock.core.replica import EpochStart, LeaderEpochHistory


def history(*entries: tuple[int, int]) -> LeaderEpochHistory:
    return LeaderEpochHistory(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def end_of(epochs: LeaderEpochHistory, epoch: int, log_end: int = 100) -> tuple[int, int] | None:
    found = epochs.end_offset_for(LeaderEpoch(epoch), Offset(log_end))
    return None if found is None else (found.epoch, found.start)


def test_only_a_growing_epoch_is_assigned() -> None:
    epochs = history((3, 0))

    assert not epochs.assign(LeaderEpoch(3), Offset(10))
    assert not epochs.assign(LeaderEpoch(2), Offset(10))
    assert epochs.assign(LeaderEpoch(5), Offset(10))

    assert epochs.entries() == ((3, 0), (5, 10))


def test_an_epoch_that_never_wrote_gives_way_to_the_next_one() -> None:
    epochs = history((1, 0), (2, 40))

    epochs.assign(LeaderEpoch(3), Offset(40))

    assert epochs.entries() == ((1, 0), (3, 40))


def test_the_latest_epoch_ends_at_the_log_end() -> None:
    assert end_of(history((1, 0), (4, 40)), 4) == (4, 100)


def test_an_older_epoch_ends_where_the_next_one_begins() -> None:
    epochs = history((1, 0), (4, 40), (6, 70))

    assert end_of(epochs, 1) == (1, 40)
    assert end_of(epochs, 4) == (4, 70)


def test_an_epoch_between_two_known_ones_is_answered_with_the_older() -> None:
    assert end_of(history((1, 0), (4, 40)), 3) == (1, 40)


def test_an_epoch_older_than_the_history_ends_where_the_history_begins() -> None:
    assert end_of(history((4, 40), (6, 70)), 2) == (2, 40)


def test_an_epoch_from_the_future_is_unknown() -> None:
    assert end_of(history((1, 0)), 2) is None
    assert end_of(history(), 0) is None
    assert end_of(history((1, 0)), -1) is None


def test_truncation_forgets_the_epochs_that_began_at_or_behind_the_new_end() -> None:
    epochs = history((1, 0), (4, 40), (6, 70))

    assert epochs.truncate_to(Offset(70))

    assert epochs.entries() == ((1, 0), (4, 40))
    assert not epochs.truncate_to(Offset(70))


def test_a_new_log_start_keeps_the_epoch_that_wrote_it() -> None:
    epochs = history((1, 0), (4, 40), (6, 70))

    assert epochs.advance_to(Offset(50))

    assert epochs.entries() == ((4, 40), (6, 70))
    assert not epochs.advance_to(Offset(60))


def test_every_offset_has_the_epoch_that_wrote_it() -> None:
    epochs = history((1, 10), (4, 40))

    assert [epochs.epoch_at(Offset(offset)) for offset in (9, 10, 39, 40, 99)] == [-1, 1, 1, 4, 4]
