"""A plain TCP connection: recv_into, sendmsg, sendfile."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from penstock.core.model import PenstockError
from penstock.runtime.pipes.port import Part, PipeHandler, Span

BUFFERS = (bytes, bytearray, memoryview)
# One connection may not keep the loop from the others for longer than this many bytes.
TURN_BYTES_MAX = 4 << 20
# sendmsg takes at most IOV_MAX (1024) buffers.
GATHER_MAX = 512
SENDFILE_BYTES_MAX = 1 << 20


class PlainPipe:
    """One connection. Made by the acceptor, which also names its handler."""

    __slots__ = (
        "_fd",
        "_handler",
        "_loop",
        "_moved",
        "_on_closed",
        "_parts",
        "_paused",
        "_reading",
        "_socket",
        "_writing",
        "held_bytes",
        "local",
        "peer",
        "pending_bytes",
        "sent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        on_closed: Callable[["PlainPipe"], None],
    ) -> None:
        self._loop = loop
        self._socket = connection
        self._fd = connection.fileno()
        self._on_closed = on_closed
        self._parts: deque[Part] = deque()
        self._paused = False
        self._reading = False
        self._writing = False
        self._handler: PipeHandler | None = None
        self._moved: Callable[[int], None] | None = None
        self.pending_bytes = 0
        self.held_bytes = 0
        self.sent_bytes = 0
        self.local: tuple[str, int] = connection.getsockname()[:2]
        host, port = connection.getpeername()[:2]
        self.peer = f"{host}:{port}"

    def start(self, handler: PipeHandler) -> None:
        """Begin to read, unless the handler has asked for a pause already."""
        self._handler = handler
        if not self._paused:
            self.resume()

    def pause(self) -> None:
        self._paused = True
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        self._paused = False
        if not self._reading and self._handler is not None:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        handler = self._handler
        if handler is None:
            return
        try:
            count = self._socket.recv_into(handler.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
        else:
            handler.received(count)

    def account(self, moved: Callable[[int], None]) -> None:
        self._moved = moved

    def write(self, parts: list[Part]) -> None:  # noqa: C901 - the hot path, straight on purpose
        if self._handler is None:
            return
        size, only_buffers = 0, True
        for part in parts:
            if isinstance(part, BUFFERS):
                size += len(part)
            else:
                size += part.length
                only_buffers = False
        if only_buffers and not self._writing and len(parts) <= GATHER_MAX:
            # Nearly always nothing waits, and the socket takes it all.
            try:
                count = self._socket.sendmsg(parts)  # type: ignore[arg-type]  # there are no spans
            except (BlockingIOError, InterruptedError):
                count = 0
            except OSError:
                self.close()
                return
            self.sent_bytes += count
            if count == size:
                return
            size -= count
            parts = _after(parts, count)
        self.pending_bytes += size
        self._parts.extend(parts)
        if not self._writing:
            self._send()
        else:
            self._hold(self.held_bytes + _memory(parts))

    def _writable(self) -> None:
        self._send()
        if self._handler is not None and not self._parts:
            self._handler.drained()

    def _send(self) -> None:
        """Send until nothing is left, the socket is full, or the turn is over."""
        turn_end = self.sent_bytes + TURN_BYTES_MAX
        try:
            while self._parts and self.sent_bytes < turn_end:
                count = self._send_buffers() if isinstance(self._parts[0], BUFFERS) else self._send_span()
                self.sent_bytes += count
                self.pending_bytes -= count
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, PenstockError):
            # The client is gone, or the file is: neither is anybody else's trouble.
            self.close()
            return
        if self._parts or self._writing:
            self._want_writable(bool(self._parts))
        if self._parts or self.held_bytes:
            # Nothing is left, as a rule: so it is not counted on the way in.
            self._hold(_memory(self._parts))

    def _hold(self, held: int) -> None:
        change, self.held_bytes = held - self.held_bytes, held
        if self._moved is not None and change:
            self._moved(change)

    def _send_buffers(self) -> int:
        parts = self._parts
        gathered: list[bytes | bytearray | memoryview] = []
        for part in parts:
            if not isinstance(part, BUFFERS) or len(gathered) == GATHER_MAX:
                break
            gathered.append(part)
        more = socket.MSG_MORE if len(gathered) < len(parts) else 0
        count = self._socket.sendmsg(gathered, (), more)
        left = count
        for part in gathered:
            if left < len(part):
                parts[0] = memoryview(part)[left:]
                break
            left -= len(part)
            parts.popleft()
        return count

    def _send_span(self) -> int:
        span = self._parts[0]
        assert not isinstance(span, BUFFERS)
        count = os.sendfile(self._fd, span.fileno(), span.position, min(span.length, SENDFILE_BYTES_MAX))
        if count == 0:
            # The file ends before the span does: it was truncated under us, and the
            # client is waiting for bytes that no longer exist.
            raise ConnectionAbortedError("a file was truncated while it was being sent")
        if count == span.length:
            self._parts.popleft()
        else:
            self._parts[0] = _Rest(span, count)
        return count

    def _want_writable(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._fd, self._writable)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._fd)
        self._writing = wanted

    def close(self) -> None:
        handler, self._handler = self._handler, None
        if handler is None:
            return
        self.pause()
        self._want_writable(False)
        self._parts.clear()
        self._hold(0)
        self.pending_bytes = 0
        self._socket.close()
        self._on_closed(self)
        handler.closed()


def _after(parts: list[Part], sent: int) -> list[Part]:
    """What is left of these buffers."""
    left = sent
    for index, part in enumerate(parts):
        assert isinstance(part, BUFFERS)
        if left < len(part):
            return [memoryview(part)[left:], *parts[index + 1 :]]
        left -= len(part)
    return []


def _memory(parts: Iterable[Part]) -> int:
    """How many bytes of these are in memory."""
    return sum(len(part) for part in parts if isinstance(part, BUFFERS))


class _Rest:
    """What is left of a span after a part of it was sent."""

    __slots__ = ("_span", "length", "position")

    def __init__(self, span: Span, sent: int) -> None:
        self._span: Span = span._span if isinstance(span, _Rest) else span
        self.position = span.position + sent
        self.length = span.length - sent

    def fileno(self) -> int:
        return self._span.fileno()

    def read(self) -> bytes:
        return self._span.read()[-self.length :]
