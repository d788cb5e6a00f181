"""One link to a peer over a raw non-blocking socket.

    WAITING  (accepted: their hello comes first)  --\
    CALLING  (connecting) -- GREETING (ours is sent) -- OPEN -- CLOSED

Frames of one loop turn leave in one system call. The socket is read once per turn,
at most one receive buffer full, so that no peer monopolises the loop.

A frame on the wire:

    +----------------+---------------------+
    | length: uint32 | length bytes        |   big-endian; length 0 is a keep-alive
    +----------------+---------------------+
"""

import asyncio
import enum
import itertools
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from penstock.core.model import Instant, ProtocolError
from penstock.runtime.peer_handshake import (
    GREETING_BYTES_MAX,
    VERSION_MIN,
    Admit,
    Hello,
    HelloRefusal,
    read_greeting,
    same_cluster,
    write_hello,
    write_refusal,
)
from penstock.runtime.port import Buffer, Callback, Clock, CloseReason, LinkHandler, NodeIdentity, Timer
from penstock.runtime.timers import Deliver

LENGTH = struct.Struct(">I")
KEEP_ALIVE = LENGTH.pack(0)
# From here on copying a frame costs more than a system call of its own.
AT_ONCE_BYTES = 64 * 1024
_BUFFERS_PER_CALL = 256
# One read per link and loop turn: large enough for bulk replication, small enough
# that a turn over many links stays short.
_READ_BYTES = 256 * 1024


class FrameTooLong(ProtocolError):
    """The peer announced a frame above the limit."""


class PeerFrameReader:
    """Collects bytes and returns whole frames; holds no more than one frame and one read."""

    __slots__ = ("_buffer", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Add what was read from the peer."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Return the next whole frame, without keep-alives, or None: then feed more.

        The announced length is checked as soon as it is there, and memory grows only with
        the bytes that really arrive.
        """
        buffer = self._buffer
        start = self._start
        while len(buffer) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, start)
            if length > self.frame_bytes_max:
                raise FrameTooLong(
                    f"a peer frame of {length} bytes is above the limit of {self.frame_bytes_max}"
                )
            start += LENGTH.size
            if length == 0:
                self._start = start
                continue
            end = start + length
            if len(buffer) < end:
                break
            self._start = end
            return bytes(memoryview(buffer)[start:end])
        if self._start:
            # Only the unfinished frame is kept: this is where the consumed bytes are freed.
            del buffer[: self._start]
            self._start = 0
        return None


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """Memory limits and timeouts for one peer."""

    frame_bytes_max: int = 128 * 1024 * 1024
    send_buffer_bytes_max: int = 8 * 1024 * 1024
    links_max: int = 1024
    connect_timeout_ms: int = 2_000
    handshake_timeout_ms: int = 2_000
    idle_timeout_ms: int = 10_000
    authentication: bytes = b""


class LinkOutbox:
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
        # An empty part would be offered to the socket for ever: nothing of it is ever sent.
        filled = filter(len, parts)
        self._buffers.extend(filled if borrow else map(_owned, filled))

    def write_to(self, connected: socket.socket) -> bool:
        """Write what the socket takes, and copy the rest of borrowed parts; True: all is written."""
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
    """Return the bytes in memory that nobody else can change."""
    immutable = isinstance(part, bytes) or (isinstance(part, memoryview) and isinstance(part.obj, bytes))
    return part if immutable else bytes(part)


class LinkPoller:
    """Registers the sockets of links with the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        deliver: Deliver,
        *,
        hello: Hello,
        admit: Admit | None,
        options: PeerOptions,
    ) -> None:
        self._loop = loop
        self.clock = clock
        self.deliver = deliver
        self.hello = hello
        self._admit = admit
        self.options = options
        self.scratch = memoryview(bytearray(_READ_BYTES))
        self.links: dict[object, None] = {}  # in order of age
        self._saturated: set[object] = set()

    def admit(self, hello: Hello) -> HelloRefusal | None:
        """Check a peer's hello: by the configured rule, or else by its cluster."""
        return (self._admit or same_cluster(self.hello.identity))(hello)

    def join_cluster(self, cluster_id: UUID) -> None:
        self.hello = replace(self.hello, identity=self.hello.identity._replace(cluster_id=cluster_id))

    def sockets_busy(self) -> bool:
        """Whether some link's last read left bytes in the kernel."""
        return bool(self._saturated)

    def note_read(self, link: object, *, saturated: bool) -> None:
        if saturated:
            self._saturated.add(link)
        else:
            self._saturated.discard(link)

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon(self.deliver, callback, *arguments)

    def start_reading(self, connected: socket.socket, readable: Callback) -> None:
        self._loop.add_reader(connected, readable)

    def stop_reading(self, link: object, connected: socket.socket) -> None:
        self._saturated.discard(link)
        self._loop.remove_reader(connected)

    def start_writing(self, connected: socket.socket, writable: Callback) -> None:
        self._loop.add_writer(connected, writable)

    def stop_writing(self, connected: socket.socket) -> None:
        self._loop.remove_writer(connected)

    def forget(self, link: object, connected: socket.socket | None) -> None:
        """The link has ended: stop watching its socket."""
        self.links.pop(link, None)
        self._saturated.discard(link)
        if connected is not None:
            self._loop.remove_reader(connected)
            self._loop.remove_writer(connected)


class LinkState(enum.Enum):
    """How far a link has come."""

    CALLING = enum.auto()
    GREETING = enum.auto()
    WAITING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class SocketLink:
    """One connection; see `penstock.runtime.port.Link` for the contract."""

    def __init__(self, wiring: LinkPoller, handler: LinkHandler, state: LinkState) -> None:
        self._wiring = wiring
        self._handler = handler
        self._state = state
        self._socket: socket.socket | None = None
        self._reader = PeerFrameReader(GREETING_BYTES_MAX)
        self._outbox = LinkOutbox()
        self._flush_queued = False
        self._blocked = False
        self._turned_away = False
        self._paused = False
        self._was_announced = state is LinkState.CALLING
        self._heard_at = wiring.clock.now()
        self._sent_at = self._heard_at
        self.deadline: Timer | None = None

    def send(self, *parts: Buffer) -> bool:
        if self._state is not LinkState.OPEN:
            return False
        if self._outbox.size_bytes >= self._wiring.options.send_buffer_bytes_max:
            self._turned_away = True
            return False
        self._enqueue(parts)
        return True

    def pause(self) -> None:
        if not self._paused and self._state is LinkState.OPEN and self._socket is not None:
            self._paused = True
            self._wiring.stop_reading(self, self._socket)

    def resume(self) -> None:
        if self._paused and self._state is LinkState.OPEN and self._socket is not None:
            self._paused = False
            self._wiring.start_reading(self._socket, self._readable)
            # Whole frames may wait in the reader already, without a socket event.
            self._wiring.soon(self._hand_over)

    def close(self) -> None:
        self.end(CloseReason.OURS)

    @property
    def is_closed(self) -> bool:
        return self._state is LinkState.CLOSED

    def hold(self, connection: socket.socket) -> None:
        """Own this socket, connected or not: it is closed with the link."""
        assert self._socket is None
        self._socket = connection

    def greet(self) -> None:
        """The socket is connected: the dialling side sends its hello, the other side waits for it."""
        assert self._socket is not None
        self._heard_at = self._wiring.clock.now()
        self._wiring.start_reading(self._socket, self._readable)
        if self._state is LinkState.CALLING:
            self._state = LinkState.GREETING
            self._enqueue((write_hello(self._wiring.hello),))

    def end(self, ending: CloseReason) -> None:
        """Close the socket now and notify the handler soon."""
        if self._state is LinkState.CLOSED:
            return
        if self._socket is not None:
            self._flush()  # a last attempt: a refusal, or the frames of this turn
        self._wiring.forget(self, self._socket)
        if self._socket is not None:
            self._socket.close()
        self._state = LinkState.CLOSED
        self._outbox.clear()
        if self.deadline is not None:
            self.deadline.cancel()
        if self._was_announced:
            self._wiring.soon(self._handler.closed, self, ending)

    def keep_alive(self, now: Instant, idle_ns: int) -> None:
        """Close the link to a silent peer, or send a keep-alive; called a few times per idle timeout."""
        if self._state is not LinkState.OPEN:
            return
        if self._paused:
            self._heard_at = now  # a paused link is not silent
        if now - self._heard_at > idle_ns:
            self.end(CloseReason.SILENT)
        elif now - self._sent_at > idle_ns // 4 and self._outbox.size_bytes == 0:
            self._outbox.put((KEEP_ALIVE,), len(KEEP_ALIVE), borrow=False)
            self._flush()

    def _readable(self) -> None:
        if self._socket is None or self._state is LinkState.CLOSED:
            return
        scratch = self._wiring.scratch
        try:
            count = self._socket.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            self._wiring.note_read(self, saturated=False)
            return
        except OSError:
            self.end(CloseReason.ENDED)
            return
        if count == 0:
            self.end(CloseReason.ENDED)
            return
        self._wiring.note_read(self, saturated=count == len(scratch))
        self._heard_at = self._wiring.clock.now()
        self._reader.feed(scratch[:count])
        self._hand_over()

    def _hand_over(self) -> None:
        """Pass whole frames to the handler, until it pauses or closes the link."""
        received: Callable[..., None] = self._handler.received
        deliver = self._wiring.deliver
        try:
            while self._state is not LinkState.CLOSED and not self._paused:
                frame = self._reader.next_frame()
                if frame is None:
                    return
                if self._state is LinkState.OPEN:
                    deliver(received, self, frame)
                else:
                    self._greeted(read_greeting(frame))
        except ProtocolError:
            self.end(CloseReason.MISBEHAVED)

    def _greeted(self, greeting: Hello | HelloRefusal) -> None:
        if isinstance(greeting, HelloRefusal):
            self.end(CloseReason.REJECTED)
            return
        refusal = HelloRefusal.VERSION if greeting.version < VERSION_MIN else self._wiring.admit(greeting)
        if refusal is not None:
            self._enqueue((write_refusal(refusal),))
            self.end(CloseReason.REJECTED)
            return
        if self._state is LinkState.WAITING:
            self._enqueue((write_hello(self._wiring.hello),))
        self._open(greeting.identity)

    def _open(self, peer: NodeIdentity) -> None:
        self._state = LinkState.OPEN
        self._was_announced = True
        self._reader.frame_bytes_max = self._wiring.options.frame_bytes_max
        if self.deadline is not None:
            self.deadline.cancel()
        self._wiring.deliver(self._handler.opened, self, peer)

    def _enqueue(self, parts: tuple[Buffer, ...]) -> None:
        length = sum(len(part) for part in parts)
        assert 0 < length <= self._wiring.options.frame_bytes_max, "a frame of impossible size"
        at_once = length >= AT_ONCE_BYTES and not self._blocked
        self._outbox.put((LENGTH.pack(length), *parts), LENGTH.size + length, borrow=at_once)
        if at_once:
            self._flush()
        elif not self._flush_queued and not self._blocked:
            self._flush_queued = True
            self._wiring.soon(self._flush)

    def _flush(self) -> None:
        self._flush_queued = False
        if self._socket is None or self._state is LinkState.CLOSED or self._outbox.size_bytes == 0:
            return
        try:
            emptied = self._outbox.write_to(self._socket)
        except OSError:
            self._outbox.clear()
            self._wiring.soon(self.end, CloseReason.ENDED)
            return
        self._sent_at = self._wiring.clock.now()
        if not emptied and not self._blocked:
            self._blocked = True
            self._wiring.start_writing(self._socket, self._writable)

    def _writable(self) -> None:
        if self._socket is None or self._state is LinkState.CLOSED:
            return
        self._flush()
        if self._blocked and self._outbox.size_bytes == 0:
            self._blocked = False
            self._wiring.stop_writing(self._socket)
        # Half empty, not just below the limit: or the signal would come per frame.
        half = self._wiring.options.send_buffer_bytes_max // 2
        if self._turned_away and self._outbox.size_bytes <= half:
            self._turned_away = False
            self._wiring.soon(self._tell_drained)

    def _tell_drained(self) -> None:
        if self._state is LinkState.OPEN:
            self._handler.drained(self)
