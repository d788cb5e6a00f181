"""A disk that wraps another one and fails chosen operations, for tests and the simulator."""

import errno as errnos
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.storage.disk.memory import CrashableFile
from penstock.storage.disk.port import Buffer, Disk, DiskSpace, File, Lock, disk_error


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Which calls fail, and how.

    Of the calls of `operation` on paths that end with `path_ends`, the first `after` go
    well, the next `times` fail, the rest go well again. An append keeps the first
    `kept_bytes` of what it was given and then counts as torn. `wait` runs before the call,
    failing or not, which is how a test makes a disk slow. With errno 0 the call only waits.
    """

    operation: str
    errno: int = errnos.EIO
    path_ends: str = ""
    after: int = 0
    times: int = 1
    kept_bytes: int = 0
    wait: Callable[[], None] | None = None

    def concerns(self, operation: str, path: str) -> bool:
        return operation == self.operation and path.endswith(self.path_ends)


class _Plan:
    """The failures of one disk, and how many calls each has seen."""

    def __init__(self, failures: Iterable[FailureRule]) -> None:
        self._counts = dict.fromkeys(failures, 0)
        self.failed_syncs: dict[str, int] = {}

    def add(self, failure: FailureRule) -> None:
        self._counts[failure] = 0

    def clear(self) -> None:
        self._counts.clear()

    def due(self, operation: str, path: str) -> FailureRule | None:
        """Count a call; returns the failure that hits it."""
        hit = None
        for failure, count in self._counts.items():
            if not failure.concerns(operation, path):
                continue
            self._counts[failure] = count + 1
            if failure.after <= count < failure.after + failure.times:
                if failure.wait is not None:
                    failure.wait()
                if failure.errno:
                    hit = hit or failure
        return hit

    def check(self, operation: str, path: str) -> None:
        if failure := self.due(operation, path):
            raise disk_error(operation, path, failure.errno)


class FailingDisk:
    """Passes everything on to `inner`, except what its failures hit.

    A sync that fails on a CrashableDisk loses what was not durable, as on Linux: the pages
    are marked clean, and the next sync succeeds without writing them. The failure is reported
    once through every descriptor that was open then, and through none opened later.
    """

    def __init__(self, inner: Disk, failures: Iterable[FailureRule] = ()) -> None:
        self._inner = inner
        self._plan = _Plan(failures)

    def fail(self, failure: FailureRule) -> None:
        """Add a failure; its calls are counted from now."""
        self._plan.add(failure)

    def heal(self) -> None:
        """Fail no more. What was lost stays lost."""
        self._plan.clear()

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> File:
        self._plan.check("open", path)
        return FailingFile(
            self._inner.open(path, create=create, exclusive=exclusive, readonly=readonly), self._plan
        )

    def read(self, path: str) -> bytes:
        self._plan.check("open", path)
        self._plan.check("pread", path)
        return self._inner.read(path)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._inner.is_directory(path)

    def size(self, path: str) -> int:
        return self._inner.size(path)

    def listdir(self, path: str) -> list[str]:
        self._plan.check("listdir", path)
        return self._inner.listdir(path)

    def make_directory(self, path: str) -> None:
        self._plan.check("make_directory", path)
        self._inner.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._plan.check("rename", old)
        self._inner.rename(old, new)

    def remove(self, path: str) -> None:
        self._plan.check("remove", path)
        self._inner.remove(path)

    def remove_tree(self, path: str) -> None:
        self._plan.check("remove_tree", path)
        self._inner.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self._plan.check("sync_directory", path)
        self._inner.sync_directory(path)

    def directory_fileno(self, path: str) -> int:
        return self._inner.directory_fileno(path)

    def space(self) -> DiskSpace | None:
        return self._inner.space()

    def take_shortage(self) -> bool:
        return self._inner.take_shortage()

    def lock(self, path: str) -> Lock:
        self._plan.check("lock", path)
        return self._inner.lock(path)


class FailingFile:
    """An open file of a FailingDisk."""

    def __init__(self, inner: File, plan: _Plan) -> None:
        self._inner = inner
        self._plan = plan
        self._failures_seen = plan.failed_syncs.get(inner.path, 0)

    def opened_again(self) -> "FailingFile":
        """The same file under an opening of its own, as the sync helper has it."""
        return FailingFile(self._inner, self._plan)

    @property
    def path(self) -> str:
        return self._inner.path

    def append(self, *buffers: Buffer) -> int:
        failure = self._plan.due("append", self.path)
        if failure is None:
            return self._inner.append(*buffers)
        kept = b"".join(buffers)[: failure.kept_bytes]
        if kept:
            self._inner.append(kept)
        raise disk_error("append", self.path, failure.errno, torn=bool(kept))

    def pwrite(self, position: int, data: Buffer) -> None:
        self._plan.check("pwrite", self.path)
        self._inner.pwrite(position, data)

    def pread(self, position: int, length: int) -> bytes:
        self._plan.check("pread", self.path)
        return self._inner.pread(position, length)

    def is_warm(self, position: int, length: int) -> bool:
        return self._inner.is_warm(position, length)

    def modified_ns(self) -> int:
        return self._inner.modified_ns()

    def size(self) -> int:
        return self._inner.size()

    def truncate(self, size: int) -> None:
        self._plan.check("truncate", self.path)
        self._inner.truncate(size)

    def allocate(self, size: int) -> None:
        self._plan.check("allocate", self.path)
        self._inner.allocate(size)

    def sync(self) -> None:
        failure = self._plan.due("sync", self.path)
        if failure is not None:
            self._plan.failed_syncs[self.path] = self._plan.failed_syncs.get(self.path, 0) + 1
            if isinstance(self._inner, CrashableFile):
                self._inner.lose_unsynced()
        failures = self._plan.failed_syncs.get(self.path, 0)
        if failures > self._failures_seen:
            self._failures_seen = failures
            raise disk_error("sync", self.path, failure.errno if failure else errnos.EIO)
        self._inner.sync()

    def map_readonly(self) -> memoryview:
        self._plan.check("map_readonly", self.path)
        return self._inner.map_readonly()

    def fileno(self) -> int:
        return self._inner.fileno()

    def park(self) -> None:
        self._inner.park()

    def close(self) -> None:
        self._inner.close()
