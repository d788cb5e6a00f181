"""How much room the data directory has, looked at off the loop, and said when it changes.

A full disk refuses writes, and nothing else shows that: the node lives, reads go on, and errors reach
producers only. So the node looks at the filesystem itself. A quota may refuse writes earlier.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.core.model import MILLISECOND, Instant
from penstock.observability import Metrics
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime, Timer
from penstock.storage.disk import Disk, DiskSpace

LOOK_MS = 1_000


class DiskMonitorOptions(NamedTuple):
    """The disk counts as full with less than this, and no more once it has twice as much."""

    path: str
    free_bytes_min: int = 16 << 20


class DiskMetrics(Metrics):
    """The filesystem of the data directory."""

    def __init__(self) -> None:
        super().__init__()
        self.free_bytes = self.gauge(
            "penstock_disk_free_bytes", "Free space on the filesystem of the data directory."
        )
        self.size_bytes = self.gauge(
            "penstock_disk_size_bytes", "Size of the filesystem of the data directory."
        )


class DiskMonitor:
    """Looks at the filesystem every second."""

    def __init__(self, runtime: Runtime, side_disk: Disk, options: DiskMonitorOptions) -> None:
        self._runtime = runtime
        self._disk = side_disk
        self._options = options
        self._space: DiskSpace | None = None
        self._timer: Timer | None = None
        self.is_full = False
        self.metrics = DiskMetrics()

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def problem(self) -> str | None:
        """What to tell an operator, if the disk is full."""
        if not self.is_full or self._space is None:
            return None
        return f"disk full: {self._space.free_bytes} bytes free at {self._options.path}"

    def _look(self) -> None:
        self._runtime.spawn.spawn(self._disk.space, self._found, self._failed, ExecutorKind.DISK)

    def _look_later(self) -> None:
        deadline = Instant(self._runtime.clock.now() + LOOK_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._look)

    def _failed(self, _: Exception) -> None:
        # The executor is busy, or the filesystem does not say: what was known last counts.
        self._look_later()

    def _found(self, space: DiskSpace | None) -> None:
        if space is None:
            # A disk that is no filesystem.
            return
        if self._space is None:
            self.metrics.free_bytes.read(self._reading(lambda found: found.free_bytes))
            self.metrics.size_bytes.read(self._reading(lambda found: found.size_bytes))
        self._space = space
        least = self._options.free_bytes_min
        was_full, self.is_full = self.is_full, space.free_bytes < (2 * least if self.is_full else least)
        if self.is_full and not was_full:
            events.error(
                "disk.full", path=self._options.path, free_bytes=space.free_bytes, needed_bytes=least
            )
        elif was_full and not self.is_full:
            events.info("disk.has_room", path=self._options.path, free_bytes=space.free_bytes)
        self._look_later()

    def _reading(self, field: Callable[[DiskSpace], int]) -> Callable[[], int]:
        return lambda: 0 if self._space is None else field(self._space)
