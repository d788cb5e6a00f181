"""The loop's side of the helper process."""

import asyncio
import errno as errnos
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.core.model import StorageError
from penstock.runtime.port import SyncTarget
from penstock.runtime.sync_helper.inline import SyncFailed, sync_blocking
from penstock.runtime.sync_helper.kept import KeptFiles
from penstock.runtime.sync_helper.outbox import Outbox
from penstock.runtime.sync_helper.priority import prefer
from penstock.runtime.sync_helper.process import DROP, KEEP, MESSAGE_BYTES_MAX, SYNC

# One message's files; fewer than KEPT_MAX, so that making room never drops one of the same message.
FILES_PER_MESSAGE = 256
KEPT_MAX = 1024
CLOSE_TIMEOUT_S = 5.0

Done = Callable[[OSError | None], None]


class HelperDied(OSError):
    """The helper process is gone; what it was asked to sync may or may not be durable."""


class _Round:
    """One call to `sync`, which may take several messages."""

    __slots__ = ("_failures", "_files", "done", "waiting")

    def __init__(self, done: Done, failures: list[tuple[SyncTarget, OSError]]) -> None:
        self.done = done
        self.waiting = 0
        self._failures = failures
        self._files: dict[int, SyncTarget] = {}

    def sent(self, numbers: Sequence[int], files: Sequence[SyncTarget]) -> None:
        self.waiting += 1
        self._files.update(zip(numbers, files, strict=True))

    def failed(self, number: int, errno: int) -> None:
        self._failures.append((self._files[number], OSError(errno, f"fdatasync: {os.strerror(errno)}")))

    def finish(self) -> None:
        self.done(SyncFailed(self._failures) if self._failures else None)


class SyncHelper:
    """The runtime's sync port on a helper process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        process: subprocess.Popen[bytes],
        died: Callable[[OSError], None] | None,
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._process = process
        self._tell_died = died
        self._outbox = Outbox(loop, connection)
        self._kept = KeptFiles(KEPT_MAX, self._drop, self._tell_gone)
        self._rounds: dict[int, _Round] = {}
        self._rounds_started = 0
        self._closed = False
        self.failure: OSError | None = None
        loop.add_reader(connection, self._readable)

    @classmethod
    def start(
        cls, loop: asyncio.AbstractEventLoop, died: Callable[[OSError], None] | None = None
    ) -> "SyncHelper":
        """Start the process; `died` is called once if it ends before `close`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("process.py")
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        prefer(process.pid)
        ours.setblocking(False)
        return cls(loop, ours, process, died)

    @property
    def pid(self) -> int:
        """The helper's process id."""
        return self._process.pid

    def sync(self, files: Sequence[SyncTarget], done: Done) -> None:
        """Sync all files, then call `done` from the loop; an error names those that may be lost.

        What has no descriptor is synced here and now, which blocks.
        """
        if self.failure is not None:
            self._loop.call_soon(done, self.failure)
            return
        blocking = [file for file in files if _fileno(file) < 0]
        current = _Round(done, sync_blocking(blocking))
        if blocking:
            files = [file for file in files if _fileno(file) >= 0]
        if not files:
            self._loop.call_soon(current.finish)
        for start in range(0, len(files), FILES_PER_MESSAGE):
            chunk = files[start : start + FILES_PER_MESSAGE]
            numbers = [self._number(file) for file in chunk]
            self._rounds_started = number = (self._rounds_started + 1) & 0xFFFFFFFF
            self._rounds[number] = current
            current.sent(numbers, chunk)
            self._send(struct.pack(f"=B{1 + len(numbers)}I", SYNC, number, *numbers))

    def close(self) -> None:
        """End the helper. Whoever still waits is not told."""
        if self._closed:
            return
        self._closed = True
        if self.failure is None:
            self._disconnect()
        self._rounds.clear()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _number(self, file: SyncTarget) -> int:
        number, is_new = self._kept.number(file)
        if is_new:
            self._send(struct.pack("=BI", KEEP, number), file)
        return number

    def _tell_gone(self) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._kept.drop_gone)

    def _drop(self, number: int) -> None:
        if not self._closed and self.failure is None:
            self._send(struct.pack("=BI", DROP, number))

    def _send(self, message: bytes, file: SyncTarget | None = None) -> None:
        try:
            self._outbox.send(message, file)
        except OSError as error:
            # Callbacks must not run inside the caller's call: tell them from the loop.
            self._loop.call_soon(self._die, error)

    def _readable(self) -> None:
        while not self._closed and self.failure is None:
            try:
                reply = self._connection.recv(MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError as error:
                self._die(error)
                return
            if not reply:
                self._die(None)
                return
            self._answered(reply)
            if not self._rounds:
                # Nothing else can have come; another recv would only find that out.
                return

    def _answered(self, reply: bytes) -> None:
        number, *failures = struct.unpack(f"={len(reply) // 4}I", reply)
        current = self._rounds.pop(number)
        for at in range(0, len(failures), 2):
            current.failed(failures[at], failures[at + 1])
        current.waiting -= 1
        if current.waiting == 0:
            current.finish()

    def _die(self, cause: OSError | None) -> None:
        if self._closed or self.failure is not None:
            return
        self.failure = HelperDied(errnos.EPIPE, f"the sync helper (process {self.pid}) is gone")
        self.failure.__cause__ = cause
        self._disconnect()
        # Reap it if it is dead; if it only hung up, it ends by itself.
        self._process.poll()
        rounds = dict.fromkeys(self._rounds.values())
        self._rounds.clear()
        if self._tell_died is not None:
            self._tell_died(self.failure)
        for current in rounds:
            current.done(self.failure)

    def _disconnect(self) -> None:
        self._loop.remove_reader(self._connection)
        self._outbox.close()
        self._connection.close()


def _fileno(file: SyncTarget) -> int:
    try:
        return file.fileno()
    except StorageError:
        # It is gone: let the blocking sync say so.
        return -1
