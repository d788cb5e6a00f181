"""The loop's side of the helper process."""

import asyncio
import errno as errnos
import os
import socket
import struct
import subprocess
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.core.model import StorageError
from penstock.runtime.port import SyncTarget
from penstock.runtime.sync_helper.inline import SyncFailed, sync_blocking
from penstock.runtime.sync_helper.priority import prefer
from penstock.runtime.sync_helper.process import DROP, KEEP, MESSAGE_BYTES_MAX, SYNC

# One message's files; fewer than KEPT_MAX, so that making room never drops one of the same message.
FILES_PER_MESSAGE = 256
KEPT_MAX = 1024
CLOSE_TIMEOUT_S = 5.0
Done = Callable[[OSError | None], None]
_NUMBERED = struct.Struct("=BI")
_SYNC_ONE = struct.Struct("=BII")
_REPLY = struct.Struct("=I")
# The buffer is full, or too many descriptors are on their way.
_FULL = (errnos.EAGAIN, errnos.ETOOMANYREFS)


class HelperDied(OSError):
    """The helper process is gone; what it was asked to sync may or may not be durable."""


class _Round:
    """One call to `sync`, which may take several messages."""

    __slots__ = ("done", "failures", "files", "waiting")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.waiting = 0
        self.failures: list[tuple[SyncTarget, OSError]] = []
        self.files: dict[int, SyncTarget] = {}

    def finish(self) -> None:
        self.done(SyncFailed(self.failures) if self.failures else None)


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
        current = _Round(done)
        for start in range(0, len(files), FILES_PER_MESSAGE):
            numbers = self._numbers(files[start : start + FILES_PER_MESSAGE], current)
            if not numbers:
                continue
            self._rounds_started = number = (self._rounds_started + 1) & 0xFFFFFFFF
            self._rounds[number] = current
            current.waiting += 1
            self._send(
                _SYNC_ONE.pack(SYNC, number, numbers[0])
                if len(numbers) == 1
                else struct.pack(f"=B{1 + len(numbers)}I", SYNC, number, *numbers)
            )
        if not current.waiting:
            self._loop.call_soon(current.finish)

    def _numbers(self, files: Sequence[SyncTarget], current: _Round) -> list[int]:
        """The numbers under which the helper has these files; those it cannot have are synced here."""
        numbers: list[int] = []
        for file in files:
            number = self._kept.find(file)
            if number is None:
                if _fileno(file) < 0:
                    current.failures += sync_blocking((file,))
                    continue
                number = self._kept.add(file)
                self._send(_NUMBERED.pack(KEEP, number), file)
            current.files[number] = file
            numbers.append(number)
        return numbers

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

    def _tell_gone(self) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._kept.drop_gone)

    def _drop(self, number: int) -> None:
        if not self._closed and self.failure is None:
            self._send(_NUMBERED.pack(DROP, number))

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
            current = self._rounds.pop(_REPLY.unpack_from(reply)[0])
            if len(reply) > _REPLY.size:
                self._note_failures(current, reply)
            current.waiting -= 1
            if current.waiting == 0:
                current.finish()
            if not self._rounds:
                # Nothing else can have come; another recv would only find that out.
                return

    def _note_failures(self, current: _Round, reply: bytes) -> None:
        for number, errno in struct.iter_unpack("=II", memoryview(reply)[_REPLY.size :]):
            error = OSError(errno, f"fdatasync: {os.strerror(errno)}")
            current.failures.append((current.files[number], error))

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


class KeptFiles:
    """Under which numbers the helper holds descriptors of which files.

    It is told to drop those of files that are gone or unused: a descriptor that it holds keeps a
    removed file's space on the disk, so it must not outlive the file object (`tell_gone` is called
    from any thread, and `drop_gone` is to be called then); and descriptors are limited, so the
    least recently synced file gives up its number when there are `kept_max`.
    """

    def __init__(self, kept_max: int, drop: Callable[[int], None], tell_gone: Callable[[], None]) -> None:
        self._kept_max = kept_max
        self._drop = drop
        self._tell_gone = tell_gone
        self._given = 0
        # Keyed by reference, which compares by the file it refers to while that lives, and
        # by itself afterwards: a new file at an old address is another key.
        self._numbers: OrderedDict[weakref.ref[SyncTarget], int] = OrderedDict()
        self._gone: deque[weakref.ref[SyncTarget]] = deque()

    def find(self, file: SyncTarget) -> int | None:
        """The number of a file that the helper has."""
        key = weakref.ref(file)
        number = self._numbers.get(key)
        if number is not None:
            self._numbers.move_to_end(key)
        return number

    def add(self, file: SyncTarget) -> int:
        """A number for a file that the helper is given now."""
        if len(self._numbers) >= self._kept_max:
            _, oldest = self._numbers.popitem(last=False)
            self._drop(oldest)
        self._given = (self._given + 1) & 0xFFFFFFFF
        self._numbers[weakref.ref(file, self._file_gone)] = self._given
        return self._given

    def drop_gone(self) -> None:
        """Give up the numbers of files that are gone."""
        while self._gone:
            number = self._numbers.pop(self._gone.popleft(), None)
            if number is not None:
                self._drop(number)

    def _file_gone(self, key: "weakref.ref[SyncTarget]") -> None:
        # The garbage collector may run this on any thread: leave the rest to the loop's.
        self._gone.append(key)
        self._tell_gone()


class Outbox:
    """Messages for the helper, in order, through a socket that may be full for a while.

    A message that hands over a descriptor waits with its file, not with the descriptor's
    number: the number may mean another file by the time it is sent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._connection = connection
        self._waiting: deque[tuple[bytes, SyncTarget | None]] = deque()

    def send(self, message: bytes, file: SyncTarget | None) -> None:
        """Send, or queue; raises OSError when the helper is gone."""
        if self._waiting:
            self._waiting.append((message, file))
        elif not self._send_now(message, file):
            self._waiting.append((message, file))
            self._loop.add_writer(self._connection, self._writable)

    def close(self) -> None:
        if self._waiting:
            self._loop.remove_writer(self._connection)
            self._waiting.clear()

    def _send_now(self, message: bytes, file: SyncTarget | None) -> bool:
        # A closed file has no descriptor: then the helper is not given one either, and
        # answers that it cannot sync that number.
        descriptor = file.fileno() if file is not None else -1
        try:
            if descriptor >= 0:
                socket.send_fds(self._connection, [message], [descriptor])
            else:
                self._connection.send(message)
        except OSError as error:
            if error.errno in _FULL:
                return False
            raise
        return True

    def _writable(self) -> None:
        while self._waiting:
            try:
                if not self._send_now(*self._waiting[0]):
                    return
            except OSError:
                # The reader sees the end of the helper as well, and tells everybody.
                self._waiting.clear()
                break
            self._waiting.popleft()
        self._loop.remove_writer(self._connection)


def _fileno(file: SyncTarget) -> int:
    try:
        return file.fileno()
    except StorageError:
        # It is gone: let the blocking sync say so.
        return -1
