"""How requests share rounds, and what a failed round means."""

from collections.abc import Callable, Sequence

from penstock.core.model import StorageError
from penstock.storage.commit import GroupCommit, SyncableFile
from penstock.storage.disk import CrashableDisk, DiskFailed, File


class Rounds:
    """Syncs that last until the test finishes them."""

    def __init__(self) -> None:
        self.files: list[list[SyncableFile]] = []
        self._done: list[Callable[[OSError | None], None]] = []

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        self.files.append(list(files))
        self._done.append(done)

    def finish(self, error: OSError | None = None) -> None:
        self._done.pop(0)(error)


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


def test_every_round_leaves_the_loop_one_turn_to_bring_more_requests() -> None:
    a, b = two_files()
    rounds, answers, turn = Rounds(), list[str](), list[Callable[[], None]]()
    commit = GroupCommit(rounds, soon=turn.append)

    commit.request(a, lambda _: answers.append("first"))
    commit.request(b, lambda _: answers.append("second"))
    before_the_turn = list(rounds.files)
    turn.pop()()
    commit.request(a, lambda _: answers.append("third"))
    rounds.finish()
    commit.request(b, lambda _: answers.append("fourth"))

    assert before_the_turn == []
    assert rounds.files == [[a, b]]
    assert answers == ["first", "second"]
    assert not commit.is_idle

    turn.pop()()
    rounds.finish()

    assert turn == []
    assert rounds.files == [[a, b], [a, b]]
    assert answers == ["first", "second", "third", "fourth"]


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

    def __init__(self, *files: SyncableFile) -> None:
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
