"""The sync port without a helper: blocks while it syncs. For tests and small tools."""

import errno as errnos
from collections.abc import Callable, Sequence

from penstock.core.model import StorageError
from penstock.runtime.port import Callback, SyncTarget


class SyncFailed(OSError):
    """Some files could not be synced; `files` says which, and the others were."""

    def __init__(self, failures: Sequence[tuple[SyncTarget, OSError]]) -> None:
        first = failures[0][1]
        super().__init__(first.errno, f"{len(failures)} files were not synced, the first: {first.strerror}")
        self.files = tuple(file for file, _ in failures)


class InlineSync:
    """Syncs inside the call, and calls back by way of `soon` (a loop's call_soon, or a list's append)."""

    def __init__(self, soon: Callable[[Callback], object]) -> None:
        self._soon = soon

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        failures = sync_blocking(files)
        self._soon(lambda: done(SyncFailed(failures) if failures else None))


def sync_blocking(files: Sequence[SyncTarget]) -> list[tuple[SyncTarget, OSError]]:
    """Sync here and now; answers what failed."""
    failures: list[tuple[SyncTarget, OSError]] = []
    for file in files:
        try:
            file.sync()
        except OSError as error:
            failures.append((file, error))
        except StorageError as error:
            # The storage's own error, as the kernel's number again: that is all the port knows.
            failures.append((file, OSError(getattr(error, "errno", errnos.EIO), str(error))))
    return failures
