"""The three answers to "may this write be acknowledged?"."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.core.model import StorageError
from penstock.storage.commit.group import Done, GroupCommit
from penstock.storage.disk import File


class Waiting(Protocol):
    """A timer that was set."""

    def cancel(self) -> None: ...


# Calls back once, so many milliseconds from now.
After: TypeAlias = Callable[[int, Callable[[], None]], Waiting]


class CommitMode(Protocol):
    """What a topic's durability setting does after each write."""

    def written(self, file: File, done: Done) -> bool:
        """The file has new bytes. True: acknowledge now. False: `done` will say so later."""

    def close(self) -> None:
        """Set no more timers. What is dirty stays dirty: a clean stop syncs by itself."""


class EveryWrite:
    """`every`: acknowledged means durable."""

    def __init__(self, commit: GroupCommit) -> None:
        self._commit = commit

    def written(self, file: File, done: Done) -> bool:
        self._commit.request(file, done)
        return False

    def close(self) -> None:
        """Nothing to give up."""


class Interval:
    """`interval`: acknowledged at once, durable at most one interval (and one sync) later.

    The timer runs only while something is dirty. `failed` hears of a sync that failed in the
    background; later writes to that file are answered with the failure.
    """

    def __init__(
        self,
        commit: GroupCommit,
        after: After,
        interval_ms: int,
        failed: Callable[[File, StorageError], None],
    ) -> None:
        self._commit = commit
        self._after = after
        self._interval_ms = interval_ms
        self._failed = failed
        self._dirty: dict[File, None] = {}
        self._timer: Waiting | None = None
        self._closed = False

    def written(self, file: File, done: Done) -> bool:
        if self._commit.failure(file) is not None:
            self._commit.request(file, done)
            return False
        self._dirty[file] = None
        if self._timer is None and not self._closed:
            self._timer = self._after(self._interval_ms, self._sync_dirty)
        return True

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sync_dirty(self) -> None:
        self._timer = None
        dirty, self._dirty = self._dirty, {}
        for file in dirty:
            self._commit.request(file, self._report(file))

    def _report(self, file: File) -> Done:
        def done(error: StorageError | None) -> None:
            if error is not None:
                self._failed(file, error)

        return done


class Never:
    """`none`: the kernel writes when it likes; a power cut may lose what was acknowledged."""

    def written(self, file: File, done: Done) -> bool:  # noqa: ARG002 - nobody waits
        return True

    def close(self) -> None:
        """Nothing to give up."""
