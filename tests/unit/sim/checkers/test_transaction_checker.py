"""Every anomaly of transactions has a name, and histories without one have none."""

from collections.abc import Sequence

from penstock.sim.checkers.transactions import (
    InputRange,
    LogEntry,
    LoggedMarker,
    LoggedRecord,
    LogPlace,
    TransactionChecker,
    TransactionHistory,
)

LEFT: LogPlace = ("transfers", 0)
RIGHT: LogPlace = ("transfers", 1)
ID = 7


class Told:
    """A checker that is told of transactions in few words."""

    def __init__(self) -> None:
        self.checker = TransactionChecker()
        self.checker.initialized("t", 0)

    def transaction(
        self, *values: tuple[LogPlace, bytes], incarnation: int = 0, commit: bool | None = None
    ) -> TransactionHistory:
        """One that has sent values; asked for an end, and told that it is done, with `commit`."""
        history = self.checker.begin("t", incarnation, expires=100)
        for place, value in values:
            self.checker.sending(history, place, [value])
        if commit is not None:
            self.checker.ending(history, commit=commit)
            self.checker.ended(history)
        return history

    def kinds(self, **logs: Sequence[LogEntry]) -> list[str]:
        places = {"left": LEFT, "right": RIGHT}
        found = self.checker.check({places[name]: entries for name, entries in logs.items()})
        return sorted({anomaly.partition(":")[0] for anomaly in (*self.checker.anomalies, *found)})


def record(offset: int, value: bytes, epoch: int = 1) -> LoggedRecord:
    return LoggedRecord(offset, value, ID, epoch)


def commit(offset: int, epoch: int = 1) -> LoggedMarker:
    return LoggedMarker(offset, ID, epoch, is_commit=True)


def abort(offset: int, epoch: int = 1) -> LoggedMarker:
    return LoggedMarker(offset, ID, epoch, is_commit=False)


def test_transactions_that_end_as_asked_are_in_order() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), (RIGHT, b"b"), commit=True)
    told.transaction((LEFT, b"c"), commit=False)
    told.checker.polled("reader", LEFT, [(0, b"a")], end=4, stable=4)

    left = (record(0, b"a"), commit(1), record(2, b"c"), abort(3))
    assert told.kinds(left=left, right=(record(0, b"b"), commit(1))) == []
    assert (told.checker.committed, told.checker.aborted) == (1, 1)


def test_a_value_is_not_given_before_its_commit_was_asked_for() -> None:
    told = Told()
    told.transaction((LEFT, b"a"))

    told.checker.polled("reader", LEFT, [(0, b"a")], end=1, stable=1)

    assert told.kinds() == ["pre-committed read"]


def test_a_transaction_does_not_read_its_own_values() -> None:
    told = Told()
    history = told.transaction((LEFT, b"a"))

    told.checker.read_in(history, [b"a"])

    assert told.kinds() == ["pre-committed read"]


def test_an_aborted_value_is_given_to_nobody() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=False)

    told.checker.polled("reader", LEFT, [(0, b"a")], end=1, stable=1)

    assert told.kinds(left=[record(0, b"a"), abort(1)]) == ["aborted read"]


def test_the_log_shows_that_a_value_was_given_which_a_timeout_aborted() -> None:
    told = Told()
    history = told.transaction((LEFT, b"a"))
    told.checker.ending(history, commit=True)  # nobody knows what became of it

    told.checker.polled("reader", LEFT, [(0, b"a")], end=2, stable=2)

    assert told.kinds(left=[record(0, b"a"), abort(1)]) == ["aborted read"]


def test_nothing_is_given_at_or_above_the_last_stable_offset() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=True)

    told.checker.polled("reader", LEFT, [(0, b"a")], end=1, stable=0)

    assert told.kinds(left=[record(0, b"a"), commit(1)]) == ["unstable read"]


def test_the_last_stable_offset_stays_below_open_transactions() -> None:
    told = Told()
    history = told.transaction((LEFT, b"a"))
    told.checker.acknowledged(history, [b"a"], 5)

    told.checker.showed_stable(LEFT, 5, high_watermark=6, now=10)
    assert told.checker.anomalies == []
    told.checker.showed_stable(LEFT, 6, high_watermark=6, now=200)  # it may have timed out
    assert told.checker.anomalies == []
    told.checker.showed_stable(LEFT, 6, high_watermark=6, now=10)

    assert told.kinds(left=[record(5, b"a"), abort(6)]) == ["unstable offset"]


def test_the_last_stable_offset_is_not_above_the_high_watermark() -> None:
    told = Told()

    told.checker.showed_stable(LEFT, 7, high_watermark=6, now=0)

    assert told.kinds() == ["unstable offset"]


def test_the_last_stable_offset_does_not_go_back_within_an_epoch() -> None:
    told = Told()
    told.checker.told_stable("reader", LEFT, 1, 5)
    told.checker.told_stable("reader", LEFT, 2, 4)
    assert told.checker.anomalies == []

    told.checker.told_stable("reader", LEFT, 2, 3)

    assert told.kinds() == ["stable offset back"]


def test_a_request_of_an_old_incarnation_is_refused() -> None:
    told = Told()
    before = told.checker.asking("t", 0, "EndTxn")
    told.checker.initialized("t", 1)
    after = told.checker.asking("t", 0, "EndTxn")

    told.checker.obeyed(before)
    assert told.checker.anomalies == []
    told.checker.obeyed(after)

    assert told.kinds() == ["zombie"]


def test_what_an_old_incarnation_began_after_the_new_one_is_never_committed() -> None:
    told = Told()
    told.checker.initialized("t", 1)
    history = told.transaction((LEFT, b"a"), incarnation=0)
    told.checker.ending(history, commit=True)

    assert told.kinds(left=[record(0, b"a"), commit(1)]) == ["zombie"]


def test_every_transaction_ends() -> None:
    told = Told()
    told.transaction((LEFT, b"a"))

    assert told.kinds(left=[record(0, b"a")]) == ["hung transaction"]


def test_a_transaction_is_committed_everywhere_or_nowhere() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), (RIGHT, b"b"), commit=True)

    assert told.kinds(left=[record(0, b"a"), commit(1)], right=[record(0, b"b"), abort(1)]) == [
        "torn transaction"
    ]


def test_a_committed_transaction_has_all_its_values() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), (RIGHT, b"b"), commit=True)

    assert told.kinds(left=[record(0, b"a"), commit(1)], right=[commit(0)]) == ["torn transaction"]


def test_a_delayed_end_commits_nothing_of_the_next_transaction() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=True)
    told.transaction((LEFT, b"b"))

    assert told.kinds(left=[record(0, b"a"), commit(1), record(2, b"b"), commit(3)]) == ["unasked commit"]


def test_a_delayed_batch_does_not_join_the_next_transaction() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=False)
    told.transaction((LEFT, b"b"), commit=False)

    assert told.kinds(left=[abort(0), record(1, b"a"), record(2, b"b"), abort(3)]) == ["joined transactions"]


def test_a_commit_that_was_acknowledged_is_not_lost() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=True)

    assert told.kinds(left=[record(0, b"a"), abort(1)]) == ["lost effect"]


def test_a_value_is_there_once_and_where_it_was_acknowledged() -> None:
    told = Told()
    history = told.transaction((LEFT, b"a"), (LEFT, b"b"), commit=True)
    told.checker.acknowledged(history, [b"b"], 5)

    assert told.kinds(left=[record(0, b"a"), record(1, b"a"), record(2, b"b"), commit(3)]) == [
        "duplicate",
        "moved",
    ]


def test_values_are_in_the_order_of_sending_and_none_came_out_of_nowhere() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), (LEFT, b"b"), commit=True)

    assert told.kinds(left=[record(0, b"b"), record(1, b"a"), record(2, b"x"), commit(3)]) == [
        "out of order",
        "unexpected",
    ]


def test_no_epoch_follows_a_marker_of_a_newer_one() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=False)

    assert told.kinds(left=[abort(0, epoch=3), record(1, b"a", epoch=2), abort(2, epoch=2)]) == [
        "stale marker",
        "stale record",
    ]


def test_a_reader_passes_over_nothing_that_is_committed() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=True)
    told.transaction((LEFT, b"b"), commit=True)

    told.checker.polled("reader", LEFT, [(2, b"b")], end=4, stable=4)

    assert told.kinds(left=[record(0, b"a"), commit(1), record(2, b"b"), commit(3)]) == ["poll skip"]


def test_a_reader_that_is_given_a_transaction_is_given_all_of_it() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), (LEFT, b"b"), commit=True)

    told.checker.polled("reader", LEFT, [(1, b"b")], end=3, stable=3)

    assert told.kinds(left=[record(0, b"a"), record(1, b"b"), commit(2)]) == ["intermediate read"]


def test_a_reader_that_begins_anew_may_be_given_everything_again() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=True)
    log = (record(0, b"a"), commit(1))

    told.checker.polled("reader", LEFT, [(0, b"a")], end=2, stable=2)
    told.checker.sought("reader", LEFT, 0)
    told.checker.polled("reader", LEFT, [(0, b"a")], end=2, stable=2)
    assert told.kinds(left=log) == []

    told.checker.polled("reader", LEFT, [(0, b"a"), (0, b"a")], end=2, stable=2)

    assert told.kinds(left=log) == ["poll back"]


def test_transactions_do_not_read_each_other() -> None:
    told = Told()
    first, second = told.transaction((LEFT, b"a")), told.transaction((RIGHT, b"b"))
    told.checker.read_in(second, [b"a"])
    left, right = (record(0, b"a"), commit(1)), (record(0, b"b"), commit(1))
    for history in (first, second):
        told.checker.ending(history, commit=True)
    assert told.kinds(left=left, right=right) == []

    told.checker.read_in(first, [b"b"])

    assert told.kinds(left=left, right=right) == ["information cycle"]


def test_what_was_read_stays_where_it_was() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), commit=True)
    told.checker.saw(LEFT, [(0, b"a"), (1, b"b")])
    told.checker.saw(LEFT, [(0, b"c")])

    assert told.kinds(left=(record(0, b"a"), commit(1))) == ["inconsistent", "replaced"]


def test_write_cycles_are_counted() -> None:
    told = Told()
    told.transaction((LEFT, b"a"), (RIGHT, b"A"), commit=True)
    told.transaction((LEFT, b"b"), (RIGHT, b"B"), commit=True)
    other = (LoggedRecord(0, b"B", 8, 0), record(1, b"A"), commit(2), LoggedMarker(3, 8, 0, is_commit=True))

    assert told.kinds(left=[record(0, b"a"), commit(1), record(2, b"b"), commit(3)], right=other) == []
    assert told.checker.write_cycles == 1


def test_every_input_is_consumed_once() -> None:
    for start, kind in ((3, "duplicated input"), (5, "lost input")):
        told = Told()
        first = told.transaction((LEFT, b"a"), commit=True)
        aborted = told.transaction((LEFT, b"x"), commit=False)
        second = told.transaction((LEFT, b"b"), commit=True)
        first.inputs.append(InputRange("g", ("orders", 0), 0, 4))
        aborted.inputs.append(InputRange("g", ("orders", 0), 4, 8))
        second.inputs.append(InputRange("g", ("orders", 0), start, 8))

        log = (record(0, b"a"), commit(1), record(2, b"x"), abort(3), record(4, b"b"), commit(5))
        assert told.kinds(left=log) == [kind]


def test_what_comes_late_ends_with_its_own_transaction_or_not_at_all() -> None:
    told = Told()
    committed = told.transaction((LEFT, b"a"), commit=True)
    told.checker.sending_late(committed, LEFT, [b"late"])
    told.checker.sending_late(committed, RIGHT, [b"refused"])
    told.checker.polled("reader", LEFT, [(0, b"a"), (1, b"late")], end=3, stable=3)

    assert told.kinds(left=[record(0, b"a"), record(1, b"late"), commit(2)]) == []


def test_what_comes_late_is_not_committed_with_the_next_transaction() -> None:
    told = Told()
    aborted = told.transaction((LEFT, b"a"), commit=False)
    told.checker.sending_late(aborted, LEFT, [b"late"])
    told.transaction((LEFT, b"b"), commit=True)

    log: list[LogEntry] = [
        record(0, b"a"),
        abort(1),
        record(2, b"late", epoch=2),
        record(3, b"b", epoch=2),
        commit(4, epoch=2),
    ]
    assert told.kinds(left=log) == ["joined transactions", "unasked commit"]
