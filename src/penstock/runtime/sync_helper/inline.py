"""The sync port without a helper: blocks while it syncs. For tests and small tools."""

import errno as errnos
from collections.abc import Callable, Sequence

from penstock.core.model import StorageError
from penstock.runtime.port import Callback, SyncTarget


class InlineSync:
    """Syncs inside the call, and calls back by way of `soon` (a loop's call_soon, or a list's append)."""

    def __init__(self, soon: Callable[[Callback], object]) -> None:
        self._soon = soon

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        failure = None
        for file in files:
            failure = failure or _sync(file)
        self._soon(lambda: done(failure))


def sync_blocking(files: Sequence[SyncTarget]) -> tuple[list[SyncTarget], OSError | None]:
    """Sync those that have no descriptor; answers the others, and the first failure."""
    failure = None
    others = []
    for file in files:
        if file.fileno() >= 0:
            others.append(file)
        else:
            failure = failure or _sync(file)
    return others, failure


def _sync(file: SyncTarget) -> OSError | None:
    try:
        file.sync()
    except OSError as error:
        return error
    except StorageError as error:
        # The storage's own error, as the kernel's number again: that is all the port knows.
        return OSError(getattr(error, "errno", errnos.EIO), str(error))
    return None
