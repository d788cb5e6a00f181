"""Syncs files without stopping the loop, and without waiting for its GIL.

A thread that syncs has to take the GIL back when the kernel is done, and a busy loop makes
it wait for that: rounds took 18 to 21 ms at the 99th percentile. A second process does not
wait. It is a bare interpreter (10 MB, of which 4 MB are its own) that gets each file's
descriptor once, and then messages that say which ones to sync:

    loop ── keep 7 (descriptor) ──►  helper      one SOCK_SEQPACKET pair, so that
         ── sync round 3: 7 9 12 ─►              messages have edges and the end
         ◄─ round 3: nothing failed              of either process shows as EOF
         ── drop 7 ──────────────►

The helper handles messages in order, syncs the files of one message on several threads,
and ends when its parent does. It has a process group of its own, so that a Ctrl-C does not
take durability away from a node that is shutting down in order.

If the helper dies, every running and every later sync fails: nobody can know what reached the
disk. The owner is notified, and the node ends.

The helper costs four switches between processes, as much CPU as a small sync itself. A lone
writer's round is therefore synced on the loop, by `LoopSync`, while that is quick and nobody waits.

`InlineSync` is for tests, small tools and disks on which a sync does nothing: it blocks.

The helper must be scheduled at once, also beside a saturated loop (`prefer`). Measured on two busy
cores: as a session of its own (which the kernel's autogroup schedules as a group of its own) a sync
of 0.15 ms took 4 ms in the median; in the loop's session 0.2 ms. A short time slice, which needs no
privilege, brought the 99th percentile of 100 files at once from about 100 ms to 15 ms; a better nice
value, which does need one, that of single files from 4 ms to 0.3 ms.

Left out: restarting the helper (the failed rounds would stop their partitions anyway), and
syncfs.
"""

import asyncio
import contextlib
import ctypes
import errno as errnos
import os
import platform
import socket
import struct
import subprocess
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence, Sized
from functools import partial
from pathlib import Path

from penstock.core.model import MILLISECOND, StorageError
from penstock.runtime.child_command import child_environment
from penstock.runtime.port import Callback, Clock, DiskSync, SyncTarget
from penstock.runtime.sync_process import DROP, KEEP, MESSAGE_BYTES_MAX, SYNC
from penstock.runtime.timers import Deliver, LoopSockets

# A sync on the loop that took longer than this, or kept a client waiting, was a mistake. Then there is
# none for so many times as long, and for twice as many if the next one is a mistake again: a single
# slow sync is soon forgotten, and a slow disk, a stream of large appends or a second client cost the
# loop a thousandth of its time.
SLOW_NS = MILLISECOND
SPARED_TIMES = 16
SPARED_TIMES_MAX = 1024
NICE = -10
SLICE_NS = 300_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# One message's files; fewer than KEPT_MAX, so that making room never drops one of the same message.
FILES_PER_MESSAGE = 256
KEPT_MAX = 1024
CLOSE_TIMEOUT_S = 5.0
Done = Callable[[OSError | None], None]
_NUMBERED = struct.Struct("=BI")
_SYNC_ONE = struct.Struct("=BII")
_REPLY = struct.Struct("=I")
# The buffer is full, or too many descriptors are in flight.
_FULL = (errnos.EAGAIN, errnos.ETOOMANYREFS)


class SyncFailed(OSError):
    """Some files could not be synced; `files` says which, and the others were."""

    def __init__(self, failures: Sequence[tuple[SyncTarget, OSError]]) -> None:
        first = failures[0][1]
        super().__init__(first.errno, f"{len(failures)} files were not synced, the first: {first.strerror}")
        self.files = tuple(file for file, _ in failures)


class InlineSync:
    """Syncs inside the call, and calls back by way of `soon` (a loop's call_soon, or a list's append)."""

    def __init__(self, soon: Callable[[Callback], object]) -> None:
        self._soon = soon

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        failures = sync_blocking(files)
        self._soon(lambda: done(SyncFailed(failures) if failures else None))


class LoopSync:
    """Syncs a file on the loop itself while that is quick and keeps nobody waiting.

    The helper means four switches between processes, which cost about as much CPU as the sync
    of a small append, and often more time. So a lone writer's round is synced on the loop, if

        one file    is to be synced: the helper syncs several side by side
        no mistake  was made lately, that is a sync that was slow or during which something arrived
        no peer     is connected: a node in a cluster owes its peers heartbeats, whatever the disk does
        nothing     has arrived that the loop could do meanwhile: its poll finds no socket ready

    A disk that hangs stops the loop, here as in the `pwritev` of any append.
    """

    def __init__(self, sockets: LoopSockets, clock: Clock, peers: Sized) -> None:
        """`peers` are those connected at any time."""
        self._sockets = sockets
        self._now = clock.now
        self._peers = peers
        self._spared_times = SPARED_TIMES
        self._spared_until_ns = 0

    def may_sync(self, files: Sequence[SyncTarget]) -> bool:
        """Whether `sync` is worth a try at the end of this turn of the loop."""
        return (
            len(files) == 1
            and self._sockets.can_tell
            and not self._peers
            and self._now() >= self._spared_until_ns
        )

    def sync(self, files: Sequence[SyncTarget]) -> OSError | bool:
        """Sync now. False: nothing was done, because a socket is ready. An error names what may be lost."""
        if self._sockets.are_ready():
            return False
        began_ns = self._now()
        failures = sync_blocking(files)
        took_ns = self._now() - began_ns
        if took_ns > SLOW_NS or self._sockets.are_ready():
            self._spared_until_ns = began_ns + took_ns * (1 + self._spared_times)
            self._spared_times = min(2 * self._spared_times, SPARED_TIMES_MAX)
        else:
            self._spared_times = SPARED_TIMES
        return SyncFailed(failures) if failures else True


def sync_blocking(files: Sequence[SyncTarget]) -> list[tuple[SyncTarget, OSError]]:
    """Sync inside this call; returns what failed."""
    failures: list[tuple[SyncTarget, OSError]] = []
    for file in files:
        try:
            file.sync()
        except OSError as error:
            failures.append((file, error))
        except StorageError as error:
            # A storage error is turned back into an errno: the port knows no other.
            failures.append((file, OSError(getattr(error, "errno", errnos.EIO), str(error))))
    return failures


def prefer(pid: int) -> None:
    """Give the helper a short time slice and a better nice value, as far as permitted."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        _set_slice(number, pid, os.getpriority(os.PRIO_PROCESS, pid))


def _set_slice(number: int, pid: int, nice: int) -> None:
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period. Since
    # Linux 6.12 the runtime of an ordinary process is its slice; before, it is ignored.
    attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, nice, 0, SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, pid, ctypes.c_char_p(attributes), 0)


class HelperDied(OSError):
    """The helper process has died; pending syncs may or may not be durable."""


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
        kept_max: int = KEPT_MAX,
    ) -> None:
        self._loop = loop
        self._files_per_message = min(FILES_PER_MESSAGE, kept_max // 2)
        self._connection = connection
        self._process = process
        self._tell_died = died
        self._outbox = SyncOutbox(loop, connection)
        self._kept = HelperFiles(kept_max, self._drop, self._tell_gone)
        self._rounds: dict[int, _Round] = {}
        self._rounds_started = 0
        self._closed = False
        self.failure: OSError | None = None
        loop.add_reader(connection, self._readable)

    @classmethod
    def start(
        cls,
        loop: asyncio.AbstractEventLoop,
        died: Callable[[OSError], None] | None = None,
        kept_max: int = KEPT_MAX,
    ) -> "SyncHelper":
        """Start the process; `died` is called once if it ends before `close`.

        It keeps `kept_max` files open.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("sync_process.py")
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=child_environment(),
                process_group=0,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        prefer(process.pid)
        ours.setblocking(False)
        return cls(loop, ours, process, died, kept_max)

    @property
    def pid(self) -> int:
        """The helper's process id."""
        return self._process.pid

    def sync(self, files: Sequence[SyncTarget], done: Done) -> None:
        """Sync all files, then call `done` from the loop; an error names those that may be lost.

        Files without a descriptor are synced inside this call, which blocks.
        """
        if self.failure is not None:
            self._loop.call_soon(done, self.failure)
            return
        current = _Round(done)
        step = self._files_per_message
        for start in range(0, len(files), step):
            numbers = self._numbers(files[start : start + step], current)
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
        """The helper's numbers of these files; those without a descriptor are synced here."""
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
        """End the helper. Pending callbacks are not called."""
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
            # Callbacks must not run inside the caller's call: call them from the loop.
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
                # Nothing else can have arrived, so another recv would be wasted.
                return

    def _note_failures(self, current: _Round, reply: bytes) -> None:
        for number, errno in struct.iter_unpack("=II", memoryview(reply)[_REPLY.size :]):
            error = OSError(errno, f"fdatasync: {os.strerror(errno)}")
            current.failures.append((current.files[number], error))

    def _die(self, cause: OSError | None) -> None:
        if self._closed or self.failure is not None:
            return
        self.failure = HelperDied(
            errnos.EPIPE, f"the sync helper (process {self.pid}) has died: restart the node"
        )
        self.failure.__cause__ = cause
        self._disconnect()
        # Reap it if it is dead; if it only closed its socket, it ends by itself.
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


class HelperFiles:
    """The numbers under which the helper holds descriptors of files.

    It drops those of files that are gone or unused: a descriptor that it holds keeps a removed
    file's space on the disk, so it must not outlive the file object (`tell_gone` is called
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
        """The number of a file that the helper has, if it has it."""
        key = weakref.ref(file)
        number = self._numbers.get(key)
        if number is not None:
            self._numbers.move_to_end(key)
        return number

    def add(self, file: SyncTarget) -> int:
        """A number for a file that is sent to the helper now."""
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


class SyncOutbox:
    """Messages to the helper, in order, through a socket that may be full for a while.

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
        # A closed file has no descriptor: then the helper does not get one either, and
        # replies that it cannot sync that number.
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
                # The reader sees the end of the helper as well, and fails every sync.
                self._waiting.clear()
                break
            self._waiting.popleft()
        self._loop.remove_writer(self._connection)


def _fileno(file: SyncTarget) -> int:
    try:
        return file.fileno()
    except StorageError:
        # It is closed: the blocking sync reports that.
        return -1


class SupervisedSync:
    """Syncs on the loop or by the helper; its callbacks are delivered by the supervisor."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, helper: DiskSync, on_loop: LoopSync, deliver: Deliver
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
        """Sync at the end of the turn, and call back at once.

        The kernel reports a failure only once per open file description, so nothing else may sync the
        file successfully before its owner has got the error.
        """
        outcome = self._on_loop.sync(files)
        if outcome is False:
            self._helper.sync(files, partial(self._deliver, done))
        else:
            done(None if outcome is True else outcome)
