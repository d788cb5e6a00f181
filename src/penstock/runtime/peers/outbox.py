"""Bytes that wait for the socket to take them."""

import itertools
import socket
from collections import deque

from penstock.runtime.port import Buffer

# From here on copying a frame costs more than a system call of its own.
AT_ONCE_BYTES = 64 * 1024
_BUFFERS_PER_CALL = 256


class Outbox:
    """The unsent frames of one link, in order."""

    __slots__ = ("_borrowed", "_buffers", "size_bytes")

    def __init__(self) -> None:
        self._buffers: deque[Buffer] = deque()
        self._borrowed = False
        self.size_bytes = 0

    def put(self, parts: tuple[Buffer, ...], size_bytes: int, *, borrow: bool) -> None:
        """Add a frame. Borrowed parts are not copied: call `write_to` before the caller gets them back."""
        self.size_bytes += size_bytes
        self._borrowed |= borrow
        self._buffers.extend(parts if borrow else map(_owned, parts))

    def write_to(self, connected: socket.socket) -> bool:
        """Write what the socket takes, and copy what is left of borrowed parts. True: all is written."""
        while self._buffers:
            offered = list(itertools.islice(self._buffers, _BUFFERS_PER_CALL))
            try:
                sent = connected.sendmsg(offered)
            except (BlockingIOError, InterruptedError):
                break
            self._drop(sent)
            if sent < sum(map(len, offered)):
                break
        if self._borrowed:
            self._buffers = deque(map(_owned, self._buffers))
            self._borrowed = False
        return not self._buffers

    def clear(self) -> None:
        self._buffers.clear()
        self.size_bytes = 0

    def _drop(self, sent: int) -> None:
        self.size_bytes -= sent
        while sent:
            first = self._buffers.popleft()
            if len(first) > sent:
                self._buffers.appendleft(memoryview(first)[sent:])
                return
            sent -= len(first)


def _owned(part: Buffer) -> Buffer:
    """Give the bytes in memory that nobody else can change."""
    immutable = isinstance(part, bytes) or (isinstance(part, memoryview) and isinstance(part.obj, bytes))
    return part if immutable else bytes(part)
