"""Every anomaly of batch commit has a name, and batches without one have none."""

from penstock.sim.checkers.batches import BatchAttempt, BatchCommitChecker
from penstock.sim.checkers.transactions import TransactionHistory


def history(name: str) -> TransactionHistory:
    return TransactionHistory(name, name, incarnation=0, newest=0, expires=0)


class Drivers:
    """A checker that is told of one batch in few words; transactions are named by letters."""

    def __init__(self) -> None:
        self.checker = BatchCommitChecker()
        self._histories: dict[str, TransactionHistory] = {}

    def attempt(self, names: str, *, done: str = "", refused: bool = False) -> BatchAttempt:
        """One that is asked for; `done` is "now" or "before", if a response says so."""
        members = [self._histories.setdefault(name, history(name)) for name in names]
        attempt = BatchAttempt("sink", "1", members)
        self.ask(attempt, done=done, refused=refused)
        return attempt

    def ask(self, attempt: BatchAttempt, *, done: str = "", refused: bool = False) -> None:
        request = self.checker.asking(attempt)
        if done:
            self.checker.answered_done(request, is_repeat=done == "before")
        if refused:
            self.checker.answered_refused(request)

    def kinds(self, committed: str) -> list[str]:
        found = [*self.checker.anomalies, *self.checker.check(tuple(committed))]
        return sorted({anomaly.partition(":")[0] for anomaly in found})


def test_a_batch_is_committed_once_or_not_at_all() -> None:
    drivers = Drivers()
    first = drivers.attempt("ab", done="now")
    drivers.attempt("cd", done="before")
    drivers.ask(first, done="before")

    assert drivers.kinds("ab") == []
    assert (drivers.checker.committed, drivers.checker.repeated) == (1, 2)


def test_nobody_knows_of_a_batch_without_an_answer() -> None:
    for committed in ("", "ab", "cd"):
        drivers = Drivers()
        drivers.attempt("ab")
        drivers.attempt("cd")

        assert drivers.kinds(committed) == []


def test_a_batch_without_transactions_has_nothing_to_show() -> None:
    drivers = Drivers()
    drivers.attempt("", done="now")
    drivers.attempt("ab", done="before")

    assert drivers.kinds("") == []


def test_some_of_a_batch_is_not_committed_alone() -> None:
    drivers = Drivers()
    drivers.attempt("ab")
    drivers.attempt("cd")

    assert drivers.kinds("a") == ["torn batch"]
    assert drivers.kinds("ad") == ["torn batch"]


def test_two_attempts_are_not_both_committed() -> None:
    drivers = Drivers()
    drivers.attempt("ab")
    drivers.attempt("cd")

    assert drivers.kinds("abcd") == ["repeated batch"]
    assert drivers.kinds("abc") == ["repeated batch"]


def test_two_requests_are_not_both_told_that_they_have_committed_the_batch() -> None:
    drivers = Drivers()
    drivers.attempt("ab", done="now")
    drivers.attempt("", done="now")

    assert drivers.kinds("ab") == ["other attempt", "repeated batch"]


def test_a_batch_that_is_done_is_there() -> None:
    drivers = Drivers()
    drivers.attempt("ab", done="before")

    assert drivers.kinds("") == ["lost batch"]


def test_the_attempt_that_was_told_so_is_the_one_that_is_committed() -> None:
    drivers = Drivers()
    drivers.attempt("ab", done="now")
    drivers.attempt("cd")

    assert drivers.kinds("cd") == ["other attempt"]


def test_a_batch_that_was_refused_is_not_committed() -> None:
    drivers = Drivers()
    drivers.attempt("ab", refused=True)

    assert drivers.kinds("") == []
    assert drivers.kinds("ab") == ["refused batch"]


def test_a_batch_that_is_done_stays_so() -> None:
    drivers = Drivers()
    late = drivers.checker.asking(BatchAttempt("sink", "1", [history("x")]))
    drivers.attempt("ab", done="now")

    drivers.checker.answered_refused(late)  # it was sent before, and may have been decided before
    assert drivers.kinds("ab") == []
    drivers.attempt("cd", refused=True)
    assert drivers.kinds("ab") == ["forgotten batch"]
