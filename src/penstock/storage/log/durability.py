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

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.core.model import Offset, StorageError
from penstock.storage.commit import FileRelease, SyncableFile, SyncRequest
from penstock.storage.disk import Disk, File
from penstock.storage.journal import FrameBuilder, LogJournal
from penstock.storage.log.file_names import TEMPORARY
from penstock.storage.log.segment import Segment
from penstock.storage.log.types import LogStopped

Done: TypeAlias = Callable[[StorageError | None], None]


class Committer(Protocol):
    """Group commit as far as a log needs it: callbacks are called in the order of requests."""

    def request(self, file: File, done: Done) -> None: ...

    def join(self, request: SyncRequest) -> None: ...


class ImmediateCommit:
    """Syncs at once and blocks: for tools and tests without a loop."""

    def request(self, file: SyncableFile, done: Done) -> None:
        try:
            file.sync()
        except StorageError as error:
            done(error)
        else:
            done(None)

    def join(self, request: SyncRequest) -> None:
        if request.begin(None):
            request.finish(None)
        else:
            self.request(request.file, request.finish)


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

    __slots__ = (
        "_commit",
        "_directory",
        "_disk",
        "_names",
        "_sealed",
        "_temporaries",
        "generation",
        "journal",
        "puts",
        "rolls",
        "sharing",
        "stopped",
        "synced",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        commit: Committer,
        synced: Offset,
        journal: LogJournal | None = None,
    ) -> None:
        self.synced = synced
        self.journal = journal
        self.stopped: BaseException | None = None
        self._disk = disk
        self._directory = directory
        self._commit = commit
        self._names: File = DirectoryNames(disk, directory)  # type: ignore[assignment]
        # Grows with every truncation, after which earlier requests say nothing about the new end.
        self.generation = 0
        # Grows when small files that are on their way have become wrong.
        self.puts = 0
        self._temporaries = 0
        # The file for which the next round was requested by `sync_shared`, until that round begins: it
        # covers what is appended to the file until then.
        self.sharing: File | None = None
        self._sealed: dict[File, None] = {}
        # How many files were retired: as long as it stays the same, so does the active segment.
        self.rolls = 0

    def stop(self, cause: BaseException) -> None:
        """Take no more writes; the first cause is kept."""
        if self.stopped is None:
            self.stopped = cause

    def request(self, file: File, end: Offset, done: Done) -> None:
        """Sync the active file; then everything below `end`, its end now, is durable."""
        generation = self.generation

        def finished(error: StorageError | None) -> None:
            self.reached(error, generation, end, done)

        self._commit.request(file, finished)

    def reached(self, error: StorageError | None, generation: int, end: Offset, done: Done) -> None:
        """Called when a sync of everything below `end` has ended; ignored if the log was cut since."""
        if error is not None:
            self.stop(error)
        if self.stopped is not None:
            done(LogStopped(self._directory, self.stopped))
            return
        if generation == self.generation and end > self.synced:
            self.synced = end
            journal = self.journal
            if journal is not None and end > journal.reach and journal.is_on:
                journal.mark(end)
        done(None)

    def commit(self, file: File, log: LogEnds, segment: Segment, done: Done) -> None:
        """Make the log durable with the next round, by its journal or by its active file.

        Everything that is in this segment or before it when the round begins is durable when `done`
        is called.
        """
        self._commit.join(LogSync(self, file, log, segment, done))

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
        self.rolls += 1
        self._commit.request(file, finished)

    def release(self, file: File) -> None:
        """Close a file that nobody needs any more, without a sync, as soon as no request waits for it."""
        self.rolls += 1
        self._commit.join(FileRelease(file, lambda _: file.close()))

    def put(self, name: str, content: bytes, done: Done | None = None, *, lasting: bool = False) -> None:
        """Replace a small file without blocking; the directory is not synced.

        If `cancel_puts` is called before the bytes are on the device, the file stays as it
        was. A `lasting` one describes a fixed offset, so only a truncation cancels it.
        """
        self._temporaries += 1
        path = f"{self._directory}/{name}"
        temporary = f"{path}.{self._temporaries}{TEMPORARY}"
        asked = (self.generation, 0 if lasting else self.puts)
        file = self._disk.open(temporary, create=True)
        try:
            file.append(content)
        except StorageError:
            file.close()
            raise

        def finished(error: StorageError | None) -> None:
            try:
                if error is None and asked == (self.generation, 0 if lasting else self.puts):
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
        self.generation += 1
        self.sharing = None
        self.cancel_puts()
        self.synced = synced
        if self.journal is not None:
            self.journal.cut(synced)


class LogSync:
    """A log in one round. There is one for every log that was written, so it touches little."""

    __slots__ = (
        "_done",
        "_durability",
        "_generation",
        "_is_in_frame",
        "_log",
        "_reach",
        "_rolls",
        "_segment",
        "file",
    )

    def __init__(
        self, durability: Durability, file: File, log: LogEnds, segment: Segment, done: Done
    ) -> None:
        self._durability = durability
        self._generation = durability.generation
        self._rolls = durability.rolls
        self.file = file
        self._log = log
        self._segment = segment
        self._done = done
        # What is durable when the round is over.
        self._reach = Offset(0)
        self._is_in_frame = False

    def begin(self, frame: FrameBuilder | None) -> bool:
        """Put what was appended into the frame, if there is one."""
        durability = self._durability
        if durability.sharing is self.file:
            durability.sharing = None
        if durability.stopped is not None or self._generation != durability.generation:
            # A log that was removed meanwhile has no end, and one that was cut has another.
            return False
        journal = durability.journal
        if journal is None or not journal.is_on:
            self._reach = self._log.reach(self._segment)
            return False
        if journal.batches and self._rolls == durability.rolls:
            # Nearly always. The batches end where the log does, which is not looked at.
            reach = self._reach = journal.end
        else:
            reach = self._reach = self._log.reach(self._segment)
        if frame is None:
            journal.drop()
            journal.is_on = False
            return False
        self._is_in_frame = journal.take(frame, reach, durability.synced)
        return self._is_in_frame

    def finish(self, error: StorageError | None) -> None:
        """The round is over."""
        durability, reach = self._durability, self._reach
        if (
            error is None
            and self._is_in_frame
            and durability.synced < reach
            and durability.stopped is None
            and self._generation == durability.generation
        ):
            # Nearly always, since most rounds write a frame and nothing else.
            durability.synced = reach
            self._done(None)
        else:
            durability.reached(error, self._generation, reach, self._done)
