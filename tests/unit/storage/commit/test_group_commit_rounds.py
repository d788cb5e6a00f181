"""How requests share rounds, and what a failed round means."""

from collections.abc import Callable, Sequence

from penstock.core.model import StorageError
from penstock.storage.commit import EveryWrite, GroupCommit, Interval, Never, SyncTarget
from penstock.storage.disk import CrashableDisk, DiskFailed, File


class Rounds:
    """Syncs that last until the test finishes them."""

    def __init__(self) -> None:
        self.files: list[list[SyncTarget]] = []
        self._done: list[Callable[[OSError | None], None]] = []

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        self.files.append(list(files))
        self._done.append(done)

    def finish(self, error: OSError | None = None) -> None:
        self._done.pop(0)(error)


class Timer:
    def __init__(self, fire: Callable[[], None]) -> None:
        self.fire = fire
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def after(self, _delay_ms: int, fire: Callable[[], None]) -> Timer:
        self.timers.append(Timer(fire))
        return self.timers[-1]


def two_files() -> tuple[File, File]:
    disk = CrashableDisk()
    return disk.open("a", create=True), disk.open("b", create=True)


def test_the_first_request_starts_a_round_and_the_others_share_the_next() -> None:
    a, b = two_files()
    rounds, answers = Rounds(), list[str]()
    commit = GroupCommit(rounds)

    commit.request(a, lambda _: answers.append("first"))
    for name in ("second", "third"):
        commit.request(a, lambda _, name=name: answers.append(name))  # type: ignore[misc]
    commit.request(b, lambda _: answers.append("fourth"))
    rounds.finish()
    after_one_round = list(answers)
    rounds.finish()

    assert rounds.files == [[a], [a, b]]
    assert after_one_round == ["first"]
    assert answers == ["first", "second", "third", "fourth"]
    assert commit.is_idle


def test_a_round_that_waits_leaves_the_loop_one_turn_to_bring_more_requests() -> None:
    a, b = two_files()
    rounds, answers, turn = Rounds(), list[str](), list[Callable[[], None]]()
    commit = GroupCommit(rounds, soon=turn.append)
    commit.request(a, lambda _: answers.append("first"))
    commit.request(a, lambda _: answers.append("second"))

    rounds.finish()
    commit.request(b, lambda _: answers.append("third"))

    assert rounds.files == [[a]]
    assert not commit.is_idle

    turn.pop()()
    rounds.finish()

    assert rounds.files == [[a], [a, b]]
    assert answers == ["first", "second", "third"]


def test_a_request_that_finds_nothing_running_does_not_wait_for_a_turn() -> None:
    a, _ = two_files()
    rounds, turn = Rounds(), list[Callable[[], None]]()
    commit = GroupCommit(rounds, soon=turn.append)

    commit.request(a, lambda _: None)
    rounds.finish()
    commit.request(a, lambda _: None)

    assert rounds.files == [[a], [a]]
    assert turn == []


def test_a_failed_round_fails_its_requests_and_no_others() -> None:
    a, b = two_files()
    rounds, answers = Rounds(), list[StorageError | None]()
    commit = GroupCommit(rounds)

    commit.request(a, answers.append)
    commit.request(b, answers.append)
    rounds.finish(OSError(5, "I/O error"))
    rounds.finish()

    assert isinstance(answers[0], DiskFailed)
    assert (answers[0].operation, answers[0].path, answers[0].errno) == ("sync", "a", 5)
    assert answers[1] is None
    assert commit.counters.failed_rounds == 1


class OneFileFailed(OSError):
    """An error of the runtime that says which files it is about."""

    def __init__(self, *files: SyncTarget) -> None:
        super().__init__(5, "I/O error")
        self.files = files


def test_an_error_that_names_its_files_spares_the_others() -> None:
    a, b = two_files()
    rounds, answers = Rounds(), list[StorageError | None]()
    commit = GroupCommit(rounds)
    commit.request(a, lambda _: None)
    commit.request(a, answers.append)
    commit.request(b, answers.append)

    rounds.finish()
    rounds.finish(OneFileFailed(b))

    assert answers[0] is None
    assert isinstance(answers[1], DiskFailed)
    assert commit.failure(a) is None


def test_a_file_that_failed_is_never_synced_or_called_durable_again() -> None:
    a, b = two_files()
    rounds, answers = Rounds(), list[StorageError | None]()
    commit = GroupCommit(rounds)
    commit.request(a, answers.append)
    commit.request(a, answers.append)
    commit.request(b, answers.append)

    rounds.finish(OSError(5, "I/O error"))
    rounds.finish()
    commit.request(a, answers.append)
    rounds.finish()

    assert rounds.files == [[a], [b], []]
    assert [type(answer) for answer in answers] == [DiskFailed, DiskFailed, type(None), DiskFailed]
    assert commit.failure(a) is answers[0]
    commit.forget(a)
    assert commit.failure(a) is None


def test_the_time_of_rounds_is_counted() -> None:
    a, _ = two_files()
    rounds, ticks = Rounds(), iter([1_000_000_000, 1_250_000_000])
    commit = GroupCommit(rounds, lambda: next(ticks))

    commit.request(a, lambda _: None)
    rounds.finish()

    assert commit.counters.seconds == 0.25
    assert (commit.counters.rounds, commit.counters.files, commit.counters.requests) == (1, 1, 1)


def test_every_write_waits_for_the_sync() -> None:
    a, _ = two_files()
    rounds, answers = Rounds(), list[StorageError | None]()
    mode = EveryWrite(GroupCommit(rounds))

    now = mode.written(a, answers.append)
    rounds.finish()

    assert now is False
    assert answers == [None]


def test_interval_acknowledges_at_once_and_syncs_each_dirty_file_once_per_interval() -> None:
    a, b = two_files()
    rounds, clock, failures = Rounds(), Clock(), list[File]()
    mode = Interval(GroupCommit(rounds), clock.after, 1000, lambda file, _: failures.append(file))

    now = [mode.written(file, lambda _: None) for file in (a, b, a)]
    before = list(rounds.files)
    clock.timers[0].fire()
    rounds.finish()
    rounds.finish()

    assert now == [True, True, True]
    assert before == []
    assert [file for files in rounds.files for file in files] == [a, b]
    assert len(clock.timers) == 1
    assert failures == []


def test_an_idle_interval_sets_no_timer_and_a_closed_one_cancels_it() -> None:
    a, _ = two_files()
    clock = Clock()
    mode = Interval(GroupCommit(Rounds()), clock.after, 1000, lambda *_: None)

    quiet = len(clock.timers)
    mode.written(a, lambda _: None)
    mode.close()
    mode.written(a, lambda _: None)

    assert quiet == 0
    assert [timer.cancelled for timer in clock.timers] == [True]


def test_a_sync_that_fails_in_the_background_is_reported_and_stops_later_writes() -> None:
    a, _ = two_files()
    rounds, clock, failures, answers = Rounds(), Clock(), list[File](), list[StorageError | None]()
    mode = Interval(GroupCommit(rounds), clock.after, 1000, lambda file, _: failures.append(file))
    mode.written(a, answers.append)
    clock.timers[0].fire()

    rounds.finish(OSError(5, "I/O error"))
    now = mode.written(a, answers.append)
    rounds.finish()

    assert failures == [a]
    assert now is False
    assert [type(answer) for answer in answers] == [DiskFailed]


def test_never_syncs_nothing() -> None:
    a, _ = two_files()

    assert Never().written(a, lambda _: None) is True
