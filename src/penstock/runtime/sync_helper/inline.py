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
        failure: OSError | None = None
        for file in files:
            try:
                file.sync()
            except OSError as error:
                failure = failure or error
            except StorageError as error:
                # The storage's own error, as the kernel's number again: that is all the port knows.
                failure = failure or OSError(getattr(error, "errno", errnos.EIO), str(error))
        self._soon(lambda: done(failure))
