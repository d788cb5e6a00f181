"""The sync helper's side: runs as a script of its own, and imports nothing of Penstock.

It is started with `python -I -S sync_process.py <descriptor of its socket>`.
"""

import contextlib
import os
import queue
import resource
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Sequence

KEEP, DROP, SYNC = b"K"[0], b"D"[0], b"S"[0]
# Measured with 100 dirty files: one thread 16.9 ms, 32 threads 5.3 ms.
THREADS_MAX = 32
STACK_BYTES = 256 << 10
# A message names 256 files at most, and a reply two numbers for each.
MESSAGE_BYTES_MAX = 4 << 10
NOT_KEPT = 9  # EBADF
NUMBER = struct.Struct("=I")
DESCRIPTOR = struct.Struct("i")


class HelperFile:
    """A descriptor, and the call that makes its file durable."""

    __slots__ = ("_sync", "descriptor")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        # Whether a directory's new names count as its data is up to the filesystem
        # (to ext4 they do not), so directories are synced with everything they have.
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        self._sync = os.fsync if is_directory else os.fdatasync

    def sync(self) -> int:
        """Make the file durable; returns 0, or why it is not."""
        try:
            self._sync(self.descriptor)
        except OSError as error:
            return error.errno or NOT_KEPT
        return 0


class SyncRound:
    """The files of one message, taken one by one by several threads."""

    def __init__(self, files: list[tuple[int, HelperFile]]) -> None:
        self._todo = files
        self._left = len(files)
        self._lock = threading.Lock()
        self._finished = threading.Lock()
        self._finished.acquire()
        self.failures: list[tuple[int, int]] = []

    def work(self) -> None:
        while True:
            try:
                number, file = self._todo.pop()
            except IndexError:
                return
            if (errno := file.sync()) != 0:
                self.failures.append((number, errno))
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self._finished.release()

    def wait(self) -> None:
        self._finished.acquire()


class SyncThreads:
    """Threads that are started when a round first has work for them."""

    def __init__(self) -> None:
        self._rounds: queue.SimpleQueue[SyncRound] = queue.SimpleQueue()
        self._threads = 0

    def sync(self, files: list[tuple[int, HelperFile]]) -> list[tuple[int, int]]:
        """Sync all; returns the numbers that failed, each with its errno."""
        if not files:
            return []
        current = SyncRound(files)
        others = min(len(files) - 1, THREADS_MAX - 1)
        while self._threads < others:
            threading.Thread(target=self._help, daemon=True).start()
            self._threads += 1
        for _ in range(others):
            self._rounds.put(current)
        current.work()
        current.wait()
        return current.failures

    def _help(self) -> None:
        while True:
            self._rounds.get().work()


def serve(connection: socket.socket) -> None:
    """Handle messages, one after the other, until the parent has ended."""
    kept: dict[int, HelperFile] = {}
    syncing = SyncThreads()
    message = bytearray(MESSAGE_BYTES_MAX)
    buffers, room = (message,), socket.CMSG_SPACE(4)
    while True:
        size, attached, _, _ = connection.recvmsg_into(buffers, room)
        if not size:
            return
        if message[0] == SYNC:
            connection.send(answer(kept, syncing, struct.unpack_from(f"={size // 4}I", message, 1)))
            continue
        (number,) = NUMBER.unpack_from(message, 1)
        if message[0] == KEEP and attached:
            kept[number] = HelperFile(opened_again(*DESCRIPTOR.unpack(attached[0][2])))
        elif message[0] == DROP and (dropped := kept.pop(number, None)) is not None:
            os.close(dropped.descriptor)


def opened_again(descriptor: int) -> int:
    """A descriptor of our own for the same file, even if it has lost its name.

    The kernel reports a failed write once per open file description. With the parent's we would
    consume the report, and a sync by the parent itself would then succeed.
    """
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return descriptor
    os.close(descriptor)
    return own


def answer(kept: dict[int, HelperFile], syncing: SyncThreads, numbers: Sequence[int]) -> bytes:
    """Sync the files with these numbers; the reply is the round and what failed of it."""
    round_number, *files = numbers
    if len(files) == 1 and (file := kept.get(files[0])) is not None:
        # The usual round of a node with little load: no lock, no thread.
        errno = file.sync()
        failures = [(files[0], errno)] if errno else []
    else:
        # A file that we never got, for lack of descriptors, must not count as synced.
        failures = [(number, NOT_KEPT) for number in files if number not in kept]
        failures += syncing.sync([(number, kept[number]) for number in files if number in kept])
    flat = [value for failure in failures for value in failure]
    return struct.pack(f"={1 + len(flat)}I", round_number, *flat)


def main() -> None:
    """Set the process up and serve."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    threading.stack_size(STACK_BYTES)
    # Either error means that the parent died while we were syncing.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=int(sys.argv[1])))
    # Threads may still be in a sync that never returns; do not wait for them.
    os._exit(0)


if __name__ == "__main__":
    main()
