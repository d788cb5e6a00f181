"""What of a log is on the device, and how more of it gets there.

Every sync goes through the node's group commit, which calls back in the order of the
requests. That order is what makes the rules below cheap: when a segment is full, its file
and the directory that names its successor are requested at once, so any later success for
the successor implies that they are durable too.

With a journal, a round may make appends durable without syncing the log's file: `commit` leaves that
to the round. `request` always syncs the file: checkpoints rely on it.

A sync that failed stops the log for good. The kernel drops pages that it could not write
and calls the next sync a success, so trying again would turn a loss into a lie.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.core.model import Offset, StorageError
from penstock.storage.commit import Begins, SyncableFile
from penstock.storage.disk import Disk, File
from penstock.storage.journal import FrameBuilder, LogJournal
from penstock.storage.log.file_names import TEMPORARY
from penstock.storage.log.segment import Segment
from penstock.storage.log.types import LogStopped

Done: TypeAlias = Callable[[StorageError | None], None]


class Committer(Protocol):
    """Group commit as far as a log needs it: `done` is called in the order of requests."""

    def request(self, file: File, done: Done, begins: Begins | None = None) -> None: ...


class ImmediateCommit:
    """Syncs at once and blocks: for tools and tests without a loop."""

    def request(self, file: SyncableFile, done: Done, begins: Begins | None = None) -> None:
        if begins is not None:
            begins(None)
        try:
            file.sync()
        except StorageError as error:
            done(error)
        else:
            done(None)


class LogEnds(Protocol):
    """A log as far as its ends go."""

    def reach(self, segment: Segment) -> Offset:
        """The end of what is in this segment or before it."""


class DirectoryNames:
    """The names in a directory, as something that can be synced."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = directory

    def fileno(self) -> int:
        return self._disk.directory_fileno(self.path)

    def sync(self) -> None:
        self._disk.sync_directory(self.path)


class Durability:
    """The synced end of a log, and the reason why it may have stopped."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        commit: Committer,
        synced: Offset,
        journal: LogJournal | None = None,
    ) -> None:
        self.synced = synced
        self._journal = journal
        self.stopped: BaseException | None = None
        self._disk = disk
        self._directory = directory
        self._commit = commit
        self._names: File = DirectoryNames(disk, directory)  # type: ignore[assignment]
        # Grows with every truncation, after which earlier requests say nothing about the new end.
        self._generation = 0
        # Grows when small files that are on their way have become wrong.
        self.puts = 0
        self._temporaries = 0
        # The file for which the next round was requested by `sync_shared`, until that round begins: it
        # covers what is appended to the file until then.
        self.sharing: File | None = None
        self._sealed: dict[File, None] = {}
        # Requests of `commit` in their order: those whose round has not begun, and those whose has.
        self._gathering: deque[tuple[File, LogEnds, Segment, Done, int]] = deque()
        self._running: deque[tuple[Done, int, Offset]] = deque()

    def stop(self, cause: BaseException) -> None:
        """Take no more writes; the first cause is kept."""
        if self.stopped is None:
            self.stopped = cause

    def request(self, file: File, end: Offset, done: Done) -> None:
        """Sync the active file; then everything below `end`, its end now, is durable."""
        generation = self._generation

        def finished(error: StorageError | None) -> None:
            self._reached(error, generation, end, done)

        self._commit.request(file, finished)

    def _reached(self, error: StorageError | None, generation: int, end: Offset, done: Done) -> None:
        """Called when a sync of everything below `end` has ended; ignored if the log was cut since."""
        if error is not None:
            self.stop(error)
        if self.stopped is not None:
            done(LogStopped(self._directory, self.stopped))
            return
        if generation == self._generation and end > self.synced:
            self.synced = end
            journal = self._journal
            if journal is not None and end > journal.reach and journal.is_on:
                journal.mark(end)
        done(None)

    def commit(self, file: File, log: LogEnds, segment: Segment, done: Done) -> None:
        """Make the log durable with the next round, by its journal or by its active file.

        Everything that is in this segment or before it when the round begins is durable when `done`
        is called.
        """
        self._gathering.append((file, log, segment, done, self._generation))
        self._commit.request(file, self._finish, self._begin)

    def _begin(self, frame: FrameBuilder | None) -> bool:
        """The round of the oldest request begins: put what was appended into the frame, if there is one."""
        file, log, segment, done, generation = self._gathering.popleft()
        if self.sharing is file:
            self.sharing = None
        if self.stopped is not None or generation != self._generation:
            # A log that was removed meanwhile has no end, and one that was cut has another.
            self._running.append((done, generation, Offset(0)))
            return False
        reach = log.reach(segment)
        self._running.append((done, generation, reach))
        journal = self._journal
        if journal is None or not journal.is_on:
            return False
        if frame is None:
            journal.drop()
            journal.is_on = False
            return False
        return journal.take(frame, reach, self.synced)

    def _finish(self, error: StorageError | None) -> None:
        """The round of the oldest request that has begun is over."""
        done, generation, reach = self._running.popleft()
        journal = self._journal
        if (
            error is None
            and self.stopped is None
            and generation == self._generation
            and journal is not None
            and self.synced < reach <= journal.reach
        ):
            # Nearly always, since most rounds write a frame and nothing else.
            self.synced = reach
            done(None)
        else:
            self._reached(error, generation, reach, done)

    def request_names(self, done: Done | None = None) -> None:
        """Sync the directory."""
        self.request_file(self._names, done)

    def request_file(self, file: File, done: Done | None = None, *, close: bool = False) -> None:
        """Sync some other file of the log, which may be closed afterwards."""

        def finished(error: StorageError | None) -> None:
            if error is not None:
                self.stop(error)
            if close:
                file.close()
            if done is not None:
                done(error)

        self._commit.request(file, finished)

    def retire(self, file: File) -> None:
        """Sync a file that will not be written again, and close it when no request waits for it any more."""

        def finished(error: StorageError | None) -> None:
            if error is not None:
                self.stop(error)
            if self._sealed.pop(file, file) is None:
                file.close()

        self._sealed[file] = None
        self._commit.request(file, finished)

    def put(self, name: str, content: bytes, done: Done | None = None, *, lasting: bool = False) -> None:
        """Replace a small file without blocking; the directory is not synced.

        If `cancel_puts` is called before the bytes are on the device, the file stays as it
        was. A `lasting` one describes a fixed offset, so only a truncation cancels it.
        """
        self._temporaries += 1
        path = f"{self._directory}/{name}"
        temporary = f"{path}.{self._temporaries}{TEMPORARY}"
        asked = (self._generation, 0 if lasting else self.puts)
        file = self._disk.open(temporary, create=True)
        try:
            file.append(content)
        except StorageError:
            file.close()
            raise

        def finished(error: StorageError | None) -> None:
            try:
                if error is None and asked == (self._generation, 0 if lasting else self.puts):
                    self._disk.rename(temporary, path)
                else:
                    self._disk.remove(temporary)
            except StorageError as failed:
                error = error or failed
            if done is not None:
                done(error)

        self.request_file(file, finished, close=True)

    def cancel_puts(self) -> None:
        """Drop the small files that are being written: they are out of date."""
        self.puts += 1

    def sync_now(self, active: File, end: Offset) -> None:
        """Sync everything that belongs to the log, and wait for it."""
        try:
            for file in list(self._sealed):
                file.sync()
            self._disk.sync_directory(self._directory)
            active.sync()
        except StorageError as error:
            self.stop(error)
            raise
        self.synced = end

    def forget_requests(self, synced: Offset) -> None:
        """The log was truncated: syncs already requested say nothing about the new end."""
        self._generation += 1
        self.sharing = None
        self.cancel_puts()
        self.synced = synced
        if self._journal is not None:
            self._journal.cut(synced)
