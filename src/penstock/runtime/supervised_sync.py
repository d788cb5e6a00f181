"""The sync port of a node: the loop itself for what is quick, and else the helper process."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from penstock.runtime.port import Sync, SyncTarget
from penstock.runtime.sync_helper import LoopSync
from penstock.runtime.timers import Deliver


class SupervisedSync:
    """Decides who syncs; its callbacks are delivered by the supervisor."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, helper: Sync, on_loop: LoopSync, deliver: Deliver
    ) -> None:
        self._loop = loop
        self._helper = helper
        self._on_loop = on_loop
        self._deliver = deliver

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        if self._on_loop.may_sync(files):
            self._loop.call_soon(self._deliver, self._sync_here, files, done)
        else:
            self._helper.sync(files, partial(self._deliver, done))

    def _sync_here(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        """Sync at the end of the turn, and tell at once.

        The kernel reports a failure only once for the loop's opening of the file, so nobody may get to
        sync that file, and find it fine, before the owner has heard of it.
        """
        outcome = self._on_loop.sync(files)
        if outcome is False:
            self._helper.sync(files, partial(self._deliver, done))
        else:
            done(None if outcome is True else outcome)
