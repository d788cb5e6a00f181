"""The process that is killed: appends until it is told to stop halfway through a write.

    python -m penstock.cli.demo.engine.writer ROOT DIRECTORY TOPIC_ID FIRST_TIMESTAMP BATCHES

It reports on stdout: `acked N` when everything below offset N is on disk, and `halfway`
when half of a batch is written and the process waits for its end.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from penstock.cli.demo.engine.batches import endless_batches, pack
from penstock.cli.demo.engine.host import run_on_runtime
from penstock.cli.demo.engine.produce import EPOCH, IN_FLIGHT, OPTIONS
from penstock.core.model import Offset, StorageError, TopicId
from penstock.runtime import Callback, Runtime
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Buffer, File, PosixDisk
from penstock.storage.log import PartitionLog


class HalfwayFile:
    """A file whose next append, once it is armed, stops in the middle and waits to be killed."""

    def __init__(self, file: File, disk: "HalfwayDisk") -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, *buffers: Buffer) -> int:
        if not self._disk.is_armed:
            return self._file.append(*buffers)
        content = b"".join(buffers)
        self._file.append(content[: len(content) // 2])
        report("halfway")
        sys.stdin.buffer.read()  # ends only if the demo itself is gone
        os._exit(1)


class HalfwayDisk(PosixDisk):
    """A disk on which segments can be made to stop halfway through a write."""

    is_armed = False

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> File:
        file = super().open(path, create=create, exclusive=exclusive, readonly=readonly)
        is_segment = path.endswith(".log") and not readonly
        return cast("File", HalfwayFile(file, self)) if is_segment else file


class Writer:
    """Keeps batches in flight; after so many were acknowledged, the next append is the last."""

    def __init__(self, runtime: Runtime, log: PartitionLog, disk: HalfwayDisk, batches: int) -> None:
        self._runtime = runtime
        self._log = log
        self._disk = disk
        self._left = batches

    def start(self, first_timestamp: int) -> None:
        self._members = endless_batches(first_timestamp)
        for _ in range(IN_FLIGHT):
            self._append()

    def _append(self) -> None:
        batch = pack(next(self._members))
        appended = self._log.append(batch.content, (batch.header,), EPOCH, self._runtime.clock.wall())
        self._log.sync(self._acknowledge(Offset(appended.last_offset + 1)))

    def _acknowledge(self, end: Offset) -> Callable[[StorageError | None], None]:
        def done(error: StorageError | None) -> None:
            if error is not None:
                raise error
            report(f"acked {end}")
            self._left -= 1
            self._disk.is_armed = self._left <= 0
            self._append()

        return done


def report(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main() -> None:
    root, directory, topic_id, first_timestamp, batches = sys.argv[1:]
    disk = HalfwayDisk(root)

    def start(runtime: Runtime, stop: Callback) -> None:  # noqa: ARG001 - only a signal ends it
        commit = GroupCommit(runtime.sync, runtime.clock.now)
        log = PartitionLog.create(disk, directory, TopicId(UUID(topic_id)), OPTIONS, commit=commit)
        Writer(runtime, log, disk, int(batches)).start(int(first_timestamp))

    run_on_runtime(start)


if __name__ == "__main__":
    main()
