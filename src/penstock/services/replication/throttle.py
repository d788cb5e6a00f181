"""How fast replicas catch up that are not in sync, so that moving one does not starve the others."""

from collections.abc import Callable

from penstock.core.model import SECOND, Instant
from penstock.runtime import Runtime, Timer

UNLIMITED = 2**63 - 1


class Throttle:
    """Bytes per second, given out as they come; a sender may overdraw once and then waits for it."""

    def __init__(self, runtime: Runtime, bytes_per_second: int = UNLIMITED) -> None:
        self._runtime = runtime
        self._rate = bytes_per_second
        self._free_at = runtime.clock.now()
        self._waiting: dict[object, Callable[[], None]] = {}
        self._timer: Timer | None = None

    def configure(self, bytes_per_second: int) -> None:
        """Go on at another rate."""
        if bytes_per_second != self._rate:
            self._rate = bytes_per_second
            self._free_at = self._runtime.clock.now()
            self._tell()

    def has_room(self, asker: object, tell: Callable[[], None]) -> bool:
        """Whether something may be sent now; if not, `tell` is called when it may, once per asker."""
        now = self._runtime.clock.now()
        if self._free_at <= now:
            return True
        self._waiting[asker] = tell
        if self._timer is None:
            self._timer = self._runtime.timers.at(self._free_at, self._tell)
        return False

    def spend(self, size_bytes: int) -> None:
        now = self._runtime.clock.now()
        # What was not used in time is lost: a pause must not become a burst.
        self._free_at = Instant(max(self._free_at, now) + size_bytes * SECOND // self._rate)

    def _tell(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for tell in waiting.values():
            tell()
