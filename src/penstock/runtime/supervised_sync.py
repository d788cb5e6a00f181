"""The sync port of a node: the helper process, with callbacks delivered by the supervisor."""

from collections.abc import Callable, Sequence

from penstock.runtime.port import Sync, SyncTarget
from penstock.runtime.timers import Deliver


class SupervisedSync:
    """Sends syncs to the helper."""

    def __init__(self, helper: Sync, deliver: Deliver) -> None:
        self._helper = helper
        self._deliver = deliver

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        def ended(error: OSError | None) -> None:
            self._deliver(done, error)

        self._helper.sync(files, ended)
