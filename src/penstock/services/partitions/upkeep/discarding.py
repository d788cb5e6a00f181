"""Removing the files of deleted records without making the loop wait for the device.

    loop      the files get other names ─────────┬ the names go ───┐
    thread                         opened, so that│removing a name  │ closed: the file system
                                   frees nothing ─┘                 └ gives a gigabyte back

The names go on the loop's own view of the disk, which keeps a file readable for clients that
are being sent a part of it. What a stop or a crash comes before, the next start removes.
"""

from contextlib import suppress

from penstock.core.model import MILLISECOND, Instant, StorageError
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime
from penstock.storage.disk import Disk, File, NoSuchFile


class Discarding:
    """Removes files that nobody looks for any more."""

    def __init__(self, runtime: Runtime, disk: Disk, side_disk: Disk) -> None:
        self._runtime = runtime
        self._spawn = runtime.spawn
        self._disk = disk
        self._side_disk = side_disk

    def discard(self, paths: list[str], delay_ms: int) -> None:
        """Remove them, this much later at the earliest."""
        if delay_ms == 0:
            self._discard(paths)
            return
        deadline = Instant(self._runtime.clock.now() + delay_ms * MILLISECOND)
        self._runtime.timers.at(deadline, lambda: self._discard(paths))

    def _discard(self, paths: list[str]) -> None:
        side_disk = self._side_disk

        def hold() -> list[File]:
            held = []
            for path in paths:
                # Its topic may have been deleted meanwhile, and its directory with it.
                with suppress(NoSuchFile):
                    held.append(side_disk.open(path, readonly=True))
            return held

        def failed(error: Exception) -> None:
            events.warning("partition.files_not_held", error=error)
            self._remove(paths)

        def held(files: list[File]) -> None:
            self._remove(paths)
            self._let_go(files)

        self._spawn.spawn(hold, held, failed, ExecutorKind.DISK)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            try:
                with suppress(NoSuchFile):
                    self._disk.remove(path)
            except StorageError as error:
                events.warning("partition.file_not_removed", path=path, error=error)

    def _let_go(self, files: list[File]) -> None:
        def close() -> None:
            for file in files:
                file.close()

        self._spawn.spawn(close, lambda _: None, lambda _: close(), ExecutorKind.DISK)
