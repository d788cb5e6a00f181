"""Syncing inside the call: on the loop while that is quick, and blocking for tests and small tools."""

import asyncio
import errno as errnos
import select
from collections.abc import Callable, Sequence, Sized

from penstock.core.model import MILLISECOND, StorageError
from penstock.runtime.port import Callback, Clock, SyncTarget

# A sync that took longer than this, or kept a client waiting, was a mistake. Then the loop is spared
# others for so many times as long, and for twice as many if the next one is a mistake again: a hiccup
# is soon forgotten, and a slow disk, a stream of large appends or a second client cost the loop a
# thousandth of its time.
SLOW_NS = MILLISECOND
SPARED_TIMES = 16
SPARED_TIMES_MAX = 1024


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


class LoopSync:
    """Syncs a file on the loop itself while that is quick and keeps nobody waiting.

    Asking the helper means four switches between processes, which cost about as much CPU as the sync
    of a small append, and often more time. So a lone writer's round is ended on the spot, if

        one file    is to be synced: the helper syncs several side by side
        no mistake  was made lately, that is a sync that was slow or during which something arrived
        no peer     is connected: a node in a cluster owes its peers heartbeats, whatever the disk does
        nothing     has arrived that the loop could do meanwhile: its poll finds no socket ready

    A disk that hangs stops the loop, here as in the `pwritev` of any append.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, peers: Sized) -> None:
        """`peers` are those connected at any time."""
        self._now = clock.now
        self._peers = peers
        self._spared_times = SPARED_TIMES
        self._spared_until_ns = 0
        # What the loop waits on can itself be asked whether something is ready. Only uvloop tells.
        backend: Callable[[], int] | None = getattr(loop, "_get_backend_id", None)
        self._sockets: select.poll | None = None
        if backend is not None:
            self._sockets = select.poll()
            self._sockets.register(backend(), select.POLLIN)

    def may_sync(self, files: Sequence[SyncTarget]) -> bool:
        """Whether `sync` is worth a try at the end of this turn of the loop."""
        return (
            len(files) == 1
            and self._sockets is not None
            and not self._peers
            and self._now() >= self._spared_until_ns
        )

    def sync(self, files: Sequence[SyncTarget]) -> OSError | bool:
        """Sync now. False: nothing was done, because somebody waits. An error names what may be lost."""
        assert self._sockets is not None, "ask `may_sync` before"
        if self._sockets.poll(0):
            return False
        began_ns = self._now()
        failures = sync_blocking(files)
        took_ns = self._now() - began_ns
        if took_ns > SLOW_NS or self._sockets.poll(0):
            self._spared_until_ns = began_ns + took_ns * (1 + self._spared_times)
            self._spared_times = min(2 * self._spared_times, SPARED_TIMES_MAX)
        else:
            self._spared_times = SPARED_TIMES
        return SyncFailed(failures) if failures else True


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
