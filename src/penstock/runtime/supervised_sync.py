"""The sync port of a node: the loop itself for what is quick, and else the helper process."""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.runtime.port import SyncTarget
from penstock.runtime.sync_helper import LoopSync, SyncHelper
from penstock.runtime.timers import Deliver


class SupervisedSync:
    """Sends syncs to the helper, whose callbacks the supervisor delivers."""

    def __init__(self, helper: SyncHelper, on_loop: LoopSync, deliver: Deliver) -> None:
        self._helper = helper
        self._deliver = deliver
        self.sync_here = on_loop.sync

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        self._helper.sync(files, partial(self._deliver, done))
