"""Group commit never says "durable" too early, and calls everybody back, in order."""

from collections.abc import Callable, Sequence
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import StorageError
from penstock.storage.commit import FileSyncer, GroupCommit, SyncableFile
from penstock.storage.disk import CrashableDisk, File

FILES = 4


class DisksAtWork:
    """A runtime that finishes its one sync when the test says so, and knows what is durable."""

    def __init__(self) -> None:
        self.written = [0] * FILES
        self.durable = [0] * FILES
        self.rounds = 0
        self.covered: dict[int, int] = {}
        self._done: Callable[[OSError | None], None] | None = None

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        assert self._done is None, "two rounds at once"
        self.rounds += 1
        self.covered = {number: self.written[number] for number in map(number_of, files)}
        self._done = done

    @property
    def busy(self) -> bool:
        return self._done is not None

    def finish(self, error: OSError | None) -> None:
        done, self._done = self._done, None
        assert done is not None
        if error is None:
            for number, count in self.covered.items():
                self.durable[number] = count
        done(error)


def number_of(file: SyncableFile) -> int:
    return int(cast(File, file).path)


class Clients:
    """Writes and asks for durability, and checks every callback."""

    def __init__(self, writes_in_callbacks: bool) -> None:
        disk = CrashableDisk()
        self.files = [disk.open(str(number), create=True) for number in range(FILES)]
        self.syncs = DisksAtWork()
        self.commit = GroupCommit(cast(FileSyncer, self.syncs))
        self.asked = 0
        self.answered: list[int] = []
        self.broken: set[int] = set()
        self._again = writes_in_callbacks
        self._inside = False

    def request(self, number: int, again: bool | None = None) -> None:
        self.syncs.written[number] += 1
        ticket, needed, asked_in_round = self.asked, self.syncs.written[number], self.syncs.rounds
        self.asked += 1

        def done(error: StorageError | None) -> None:
            assert not self._inside, "called back inside the request"
            self.answered.append(ticket)
            # Nobody starves: the callback comes with the first round that began after the request.
            assert self.syncs.rounds <= asked_in_round + 2
            assert (error is not None) == (number in self.broken)
            assert error is not None or self.syncs.durable[number] >= needed
            if self._again if again is None else again:
                self.request(number, again=False)

        self._inside = True
        self.commit.request(self.files[number], done)
        self._inside = False

    def finish_round(self, error: OSError | None) -> None:
        if error is not None:
            self.broken.update(self.syncs.covered)
        self.syncs.finish(error)


write = st.tuples(st.just("write"), st.integers(0, FILES - 1))
finish = st.tuples(st.just("finish"), st.sampled_from([None, None, None, OSError(5, "I/O error")]))


@given(st.lists(st.one_of(write, write, finish), max_size=60), st.booleans())
def test_requests_are_answered_in_order_by_a_sync_that_began_after_them(
    steps: list[tuple[str, object]], writes_in_callbacks: bool
) -> None:
    clients = Clients(writes_in_callbacks)

    for kind, value in steps:
        if kind == "write":
            clients.request(cast(int, value))
        elif clients.syncs.busy:
            clients.finish_round(cast(OSError | None, value))
    while clients.syncs.busy:
        clients.finish_round(None)

    commit = clients.commit
    assert clients.answered == list(range(clients.asked))
    assert commit.is_idle
    assert (commit.counters.requests, commit.counters.rounds) == (clients.asked, clients.syncs.rounds)
    assert {number for number in range(FILES) if commit.failure(clients.files[number])} == clients.broken
