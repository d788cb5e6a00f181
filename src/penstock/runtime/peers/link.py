"""One link to a peer over a raw non-blocking socket.

    WAITING  (accepted: their hello comes first)  --\
    CALLING  (connect underway) -- GREETING (ours is sent) -- OPEN -- CLOSED

Frames of one loop turn leave in one system call. The socket is read once per turn,
at most one receive buffer full, so that no peer keeps the loop to itself.
"""

import enum
import socket
from collections.abc import Callable

from penstock.core.model import Instant, ProtocolError
from penstock.runtime.peers.frames import KEEP_ALIVE, LENGTH, FrameReader
from penstock.runtime.peers.hello import (
    GREETING_BYTES_MAX,
    VERSION,
    Hello,
    Refusal,
    read_greeting,
    write_hello,
    write_refusal,
)
from penstock.runtime.peers.outbox import AT_ONCE_BYTES, Outbox
from penstock.runtime.peers.wiring import Wiring
from penstock.runtime.port import Buffer, Ending, Identity, LinkHandler, Timer


class State(enum.Enum):
    """How far a link has come."""

    CALLING = enum.auto()
    GREETING = enum.auto()
    WAITING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class SocketLink:
    """One connection; see `penstock.runtime.port.Link` for the contract."""

    def __init__(self, wiring: Wiring, handler: LinkHandler, state: State) -> None:
        self._wiring = wiring
        self._handler = handler
        self._state = state
        self._socket: socket.socket | None = None
        self._reader = FrameReader(GREETING_BYTES_MAX)
        self._outbox = Outbox()
        self._flush_queued = False
        self._blocked = False
        self._turned_away = False
        self._paused = False
        self._was_announced = state is State.CALLING
        self._heard_at = wiring.clock.now()
        self._sent_at = self._heard_at
        self.deadline: Timer | None = None

    def send(self, *parts: Buffer) -> bool:
        if self._state is not State.OPEN:
            return False
        if self._outbox.size_bytes >= self._wiring.options.send_buffer_bytes_max:
            self._turned_away = True
            return False
        self._enqueue(parts)
        return True

    def pause(self) -> None:
        if not self._paused and self._state is State.OPEN and self._socket is not None:
            self._paused = True
            self._wiring.stop_reading(self, self._socket)

    def resume(self) -> None:
        if self._paused and self._state is State.OPEN and self._socket is not None:
            self._paused = False
            self._wiring.start_reading(self._socket, self._readable)
            # Whole frames may wait in the reader already; no socket event tells of them.
            self._wiring.soon(self._hand_over)

    def close(self) -> None:
        self.end(Ending.OURS)

    @property
    def is_closed(self) -> bool:
        return self._state is State.CLOSED

    def hold(self, connection: socket.socket) -> None:
        """Own this socket, connected or not: it is closed with the link."""
        assert self._socket is None
        self._socket = connection

    def greet(self) -> None:
        """The connection stands: the caller says hello, the called side waits for it."""
        assert self._socket is not None
        self._heard_at = self._wiring.clock.now()
        self._wiring.start_reading(self._socket, self._readable)
        if self._state is State.CALLING:
            self._state = State.GREETING
            self._enqueue((write_hello(self._wiring.hello),))

    def end(self, ending: Ending) -> None:
        """Close the socket now and tell the handler soon."""
        if self._state is State.CLOSED:
            return
        if self._socket is not None:
            self._flush()  # a last attempt: a refusal, or the frames of this turn
        self._wiring.forget(self, self._socket)
        if self._socket is not None:
            self._socket.close()
        self._state = State.CLOSED
        self._outbox.clear()
        if self.deadline is not None:
            self.deadline.cancel()
        if self._was_announced:
            self._wiring.soon(self._handler.closed, self, ending)

    def keep_alive(self, now: Instant, idle_ns: int) -> None:
        """Called a few times per idle timeout: give up on a silent peer, do not be one."""
        if self._state is not State.OPEN:
            return
        if self._paused:
            self._heard_at = now  # what we chose not to read is not silence
        if now - self._heard_at > idle_ns:
            self.end(Ending.SILENT)
        elif now - self._sent_at > idle_ns // 4 and self._outbox.size_bytes == 0:
            self._outbox.put((KEEP_ALIVE,), len(KEEP_ALIVE), borrow=False)
            self._flush()

    def _readable(self) -> None:
        if self._socket is None or self._state is State.CLOSED:
            return
        scratch = self._wiring.scratch
        try:
            count = self._socket.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            self._wiring.note_read(self, saturated=False)
            return
        except OSError:
            self.end(Ending.ENDED)
            return
        if count == 0:
            self.end(Ending.ENDED)
            return
        self._wiring.note_read(self, saturated=count == len(scratch))
        self._heard_at = self._wiring.clock.now()
        self._reader.feed(scratch[:count])
        self._hand_over()

    def _hand_over(self) -> None:
        """Give whole frames to the handler, until it pauses or closes the link."""
        received: Callable[..., None] = self._handler.received
        deliver = self._wiring.deliver
        try:
            while self._state is not State.CLOSED and not self._paused:
                frame = self._reader.next_frame()
                if frame is None:
                    return
                if self._state is State.OPEN:
                    deliver(received, self, frame)
                else:
                    self._greeted(read_greeting(frame))
        except ProtocolError:
            self.end(Ending.MISBEHAVED)

    def _greeted(self, greeting: Hello | Refusal) -> None:
        if isinstance(greeting, Refusal):
            self.end(Ending.REJECTED)
            return
        refusal = Refusal.VERSION if greeting.version < VERSION else self._wiring.admit(greeting)
        if refusal is not None:
            self._enqueue((write_refusal(refusal),))
            self.end(Ending.REJECTED)
            return
        if self._state is State.WAITING:
            self._enqueue((write_hello(self._wiring.hello),))
        self._open(greeting.identity)

    def _open(self, peer: Identity) -> None:
        self._state = State.OPEN
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
        if self._socket is None or self._state is State.CLOSED or self._outbox.size_bytes == 0:
            return
        try:
            emptied = self._outbox.write_to(self._socket)
        except OSError:
            self._outbox.clear()
            self._wiring.soon(self.end, Ending.ENDED)
            return
        self._sent_at = self._wiring.clock.now()
        if not emptied and not self._blocked:
            self._blocked = True
            self._wiring.start_writing(self._socket, self._writable)

    def _writable(self) -> None:
        if self._socket is None or self._state is State.CLOSED:
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
        if self._state is State.OPEN:
            self._handler.drained(self)
