import pytest

from penstock.core.raft import Entry, Index, Term
from penstock.core.raft.log import RaftLog
from tests.property.raft.raft_store import MemoryStore


def entries(start: int, *terms: int) -> list[Entry]:
    return [Entry(Index(start + n), Term(term), b"x") for n, term in enumerate(terms)]


def log_of(*terms: int) -> tuple[RaftLog, MemoryStore]:
    """A log whose entries are all durable."""
    store = MemoryStore()
    if terms:
        store.append(entries(1, *terms), 0)
        store.sync(0)
    return RaftLog(store), store


def write(log: RaftLog, store: MemoryStore, new: list[Entry]) -> int:
    """As a step and its host would: cut what is in the way, append, begin the next step."""
    if new[0].index <= log.last:
        log.truncate(new[0].index)
        store.truncate(new[0].index)
    number = log.append(new)
    store.append(new, number)
    log.begin_step()
    return number


def test_what_is_appended_is_seen_before_the_host_has_stored_it() -> None:
    log, _ = log_of(1, 1)

    log.append(entries(3, 2, 2))

    assert (log.last, log.last_term) == (4, 2)
    assert [log.term_at(Index(index)) for index in (2, 3, 4, 5)] == [1, 2, 2, None]
    assert [entry.index for entry in log.entries(Index(3), 1_000)] == [3, 4]


def test_at_least_one_entry_is_given_however_small_the_limit() -> None:
    log, _ = log_of(1, 1, 1)
    log.append(entries(4, 1, 1))

    assert [entry.index for entry in log.entries(Index(1), 1)] == [1]
    assert [entry.index for entry in log.entries(Index(4), 1)] == [4]
    assert log.entries(Index(6), 1_000) == ()


def test_entries_are_persisted_when_their_write_or_a_later_one_is() -> None:
    log, store = log_of(1)
    first = write(log, store, entries(2, 1))
    second = write(log, store, entries(3, 1))
    assert log.persisted == 1

    log.synced(second)

    assert log.persisted == 3
    log.synced(first)
    assert log.persisted == 3


def test_a_sync_of_a_write_that_was_cut_off_does_not_count_for_what_took_its_place() -> None:
    log, store = log_of(1)
    old = write(log, store, entries(2, 2, 2))
    write(log, store, entries(2, 3))
    # The very same entries again: a leader of the earlier term's log has won after all.
    again = write(log, store, entries(2, 2, 2))

    log.synced(old)

    assert log.persisted == 1
    log.synced(again)
    assert log.persisted == 3


def test_a_cut_takes_back_what_was_persisted() -> None:
    log, store = log_of(1, 1, 1)

    write(log, store, entries(2, 2))

    assert log.persisted == 1


@pytest.mark.parametrize(
    ("index", "term", "expected"),
    [(9, 9, (6, 4)), (6, 3, (3, 2)), (5, 2, (3, 2)), (3, 1, (2, 1)), (2, 0, (0, 0))],
)
def test_logs_may_agree_at_the_last_entry_that_is_not_of_a_later_term(
    index: int, term: int, expected: tuple[int, int]
) -> None:
    log, _ = log_of(1, 1, 2, 4, 4, 4)

    assert log.agreement(Index(index), Term(term)) == expected


def test_a_host_that_did_not_store_what_it_was_given_is_found_out() -> None:
    log, _ = log_of(1)
    log.append(entries(2, 1))

    with pytest.raises(AssertionError, match="not stored"):
        log.begin_step()
