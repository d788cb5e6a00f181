"""Group commit: when written bytes become durable, and whose callbacks are called.

    request a ─┐
    request b ─┤ round 1 ──────────┐
    request c ──── waits ──┐       done a, b
    request d ──── waits ──┤ round 2 ──────────┐
                           │                   done c, d

`GroupCommit` is the one place of a node where syncs start. While one round runs, every
request joins the next, so that a sync is shared by all who waited and is never counted for
bytes that were written after it began. A sync that fails fails the requests of its round for
that file (for all of its files, if the runtime cannot tell), and the file is never called
durable again: the kernel has dropped the pages it could not write, and the next sync would
succeed without them.

With a journal (`storage.journal`), a round writes one frame with what the logs appended and syncs
that instead of their files. A request says when the round begins (`begin`) whether its log is in the
frame; if not, its file is synced as well. If the frame cannot be written or synced, the round goes
on with the files of all its logs, whose bytes are in the page cache, and the journal is not used
again. Nobody's callback is called in between.

Which appends wait for a round (`fsync.mode`) is decided in `broker/partitions`.

Left out: syncfs, which is faster for many files but only right on a filesystem of our own.
"""

import errno as errnos
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from penstock.core.model import StorageError
from penstock.storage.disk import DiskFailed, File
from penstock.storage.journal import CommitJournal, FrameBuilder

Done: TypeAlias = Callable[[StorageError | None], None]


class SyncableFile(Protocol):
    """A file as far as syncing goes."""

    def fileno(self) -> int: ...

    def sync(self) -> None: ...


class FileSyncer(Protocol):
    """What group commit needs of the runtime: sync these files off the loop, then call back.

    Never calls back inside the call. Success covers what was written before the call. An error
    that has `files` is about those; any other is about all.
    """

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None: ...


class SyncRequest(Protocol):
    """What takes part in one round."""

    @property
    def file(self) -> File: ...

    def begin(self, frame: FrameBuilder | None) -> bool:
        """Put what a log appended into the frame, if there is one.

        Returns whether the file need not be synced.
        """

    def finish(self, error: StorageError | None) -> None:
        """The round is over."""


class FileSync:
    """A request for one file."""

    __slots__ = ("file", "finish")

    def __init__(self, file: File, done: Done) -> None:
        self.file = file
        self.finish = done

    def begin(self, _: FrameBuilder | None) -> bool:
        return False


class FileRelease:
    """No request for the file, but the end of those that were made: `finish` is called after theirs."""

    __slots__ = ("file", "finish")

    def __init__(self, file: File, finish: Done) -> None:
        self.file = file
        self.finish = finish

    def begin(self, _: FrameBuilder | None) -> bool:
        return True


@dataclass(slots=True)
class CommitCounters:
    """Plain numbers for metrics to read."""

    requests: int = 0
    rounds: int = 0
    files: int = 0
    frames: int = 0
    failed_rounds: int = 0
    seconds: float = 0.0


class _Round:
    """The requests that one sync of the runtime covers."""

    __slots__ = ("files", "frame", "requests", "started_ns")

    def __init__(self) -> None:
        self.requests: list[SyncRequest] = []
        # What is synced: the files of all requests, but of those whose log is in the frame. A dict,
        # because a set has no order and every run must sync in the same one.
        self.files: dict[File, None] = {}
        # What has to be synced for the frame.
        self.frame: tuple[SyncableFile, ...] = ()
        self.started_ns = 0


class GroupCommit:
    """Makes files durable for a whole node, one round at a time."""

    def __init__(
        self,
        syncs: FileSyncer,
        clock_ns: Callable[[], int] | None = None,
        soon: Callable[[Callable[[], None]], object] | None = None,
        journal: CommitJournal | None = None,
    ) -> None:
        """`soon` calls back when the loop has read all requests; without it, rounds start at once."""
        self._syncs = syncs
        self._journal = journal
        self._soon = soon
        # A round waits until the sockets are read: every request that was in them takes part.
        self._gathering = False
        self._clock_ns = clock_ns
        self._running: _Round | None = None
        self._next = _Round()
        self._failed: dict[File, DiskFailed] = {}
        self.counters = CommitCounters()

    def request(self, file: File, done: Done) -> None:
        """Call `done` when a sync that starts after this call has covered the file.

        `done` is never called inside this call, and callbacks are called in the order of the
        requests. The file stays open until then. Once a sync of a file has failed, every later
        request for it fails with the same error.
        """
        self.join(FileSync(file, done))

    def join(self, request: SyncRequest) -> None:
        """Take part in the next round: like `request`, with `finish` for `done`.

        `begin` is called just before the round starts, perhaps inside this call: what was written
        until then is covered too.
        """
        self._next.requests.append(request)
        if self._running is None and not self._gathering:
            self._gather()

    def failure(self, file: File) -> DiskFailed | None:
        """Why the file will never be durable again, if so."""
        return self._failed.get(file)

    def forget(self, file: File) -> None:
        """Forget the failure of a file that is closed for good."""
        self._failed.pop(file, None)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits."""
        return self._running is None and not self._next.requests

    def _gather(self) -> None:
        """Start the next round, when the loop is idle if there is one.

        Requests that wait in the sockets by now join it then: fewer and larger rounds are worth
        the delay.
        """
        if self._soon is None:
            self._start()
        else:
            self._gathering = True
            self._soon(self._start)

    def _start(self) -> None:
        self._gathering = False
        current = self._running = self._next
        self._next = _Round()
        files = current.files
        journal = self._journal
        frame = None if journal is None else journal.begin_frame()
        for request in current.requests:
            if not request.begin(frame):
                files[request.file] = None
        targets: list[SyncableFile] = []
        if frame is not None and frame.parts:
            assert journal is not None
            try:
                targets += journal.write(frame)
            except StorageError:
                files.update(_files_of(current))
            else:
                current.frame = tuple(targets)
                self.counters.frames += 1
        failed = self._failed
        # A file that failed once is not tried again; its callbacks are called when this round ends.
        targets += [file for file in files if file not in failed] if failed else files
        if self._clock_ns is not None:
            current.started_ns = self._clock_ns()
        self.counters.requests += len(current.requests)
        self.counters.rounds += 1
        if journal is not None:
            journal.metrics.rounds.count += 1
            journal.metrics.synced_files.count += len(targets)
        self.counters.files += len(targets)
        self._syncs.sync(targets, partial(self._finish, current))

    def _finish(self, finished: _Round, error: OSError | None) -> None:
        assert self._running is finished, "the runtime ended a round twice"
        if error is not None:
            self._fail(finished, error)
            if self._is_frame_lost(finished, error):
                self._sync_instead(finished, error)
                return
            self.counters.failed_rounds += 1
        if self._clock_ns is not None:
            self.counters.seconds += (self._clock_ns() - finished.started_ns) / 1e9
        # Before the callbacks: the disk need not wait for them.
        self._running = None
        if self._next.requests:
            self._gather()
        failed = self._failed
        for request in finished.requests:
            request.finish(failed.get(request.file) if failed else None)
        journal = self._journal
        if journal is not None:
            self._tend(journal)

    def _tend(self, journal: CommitJournal) -> None:
        """After a round: keep the journal from growing, and let it know what is durable by now."""
        if journal.is_crowded:
            journal.relieve()
        if not self.is_idle or self._gathering:
            return
        if journal.marks:
            # Nobody waits for it, but until it is written a loss could not be told from a torn write.
            self._gather()
        else:
            journal.seal()

    def _is_frame_lost(self, finished: _Round, error: OSError) -> bool:
        blamed = getattr(error, "files", finished.frame)
        return any(target in blamed for target in finished.frame)

    def _sync_instead(self, finished: _Round, error: OSError) -> None:
        """The frame may be lost: sync the files of its logs, before any callback."""
        assert self._journal is not None
        failure = DiskFailed("sync", "journal", error.errno or errnos.EIO)
        failure.__cause__ = error
        self._journal.fail(failure)
        finished.frame = ()
        again = [file for file in _files_of(finished) if file not in finished.files]
        finished.files.update(_files_of(finished))
        self.counters.files += len(again)
        self._syncs.sync(again, partial(self._finish, finished))

    def _fail(self, finished: _Round, error: OSError) -> None:
        blamed = getattr(error, "files", finished.files)
        for file in finished.files:
            if file in blamed and file not in self._failed:
                failure = DiskFailed("sync", file.path, error.errno or errnos.EIO)
                failure.__cause__ = error
                self._failed[file] = failure


def _files_of(round_: _Round) -> dict[File, None]:
    """The files of all requests, in their order."""
    return {request.file: None for request in round_.requests}
