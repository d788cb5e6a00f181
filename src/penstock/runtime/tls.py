"""TLS on a client's connection.

To its socket a `TlsConnection` is the protocol, to the server it is the connection: both sides stay what they
are without TLS.

    socket ── ciphertext ──▶ TlsConnection ── plaintext ──▶ server's protocol
    socket ◀── ciphertext ── TlsConnection ◀── parts ────── server's protocol

Spans of files are read and encrypted a piece at a time, as the socket takes them: a slow reader costs a
few hundred kilobytes, not the whole response. The server's protocol is made when the handshake is complete,
so that it knows whose certificate it talks to. A client that does not complete it in time is closed.

A handshake is the most work that a stranger can ask for with one packet: 0.2 ms, and milliseconds with a
large RSA key. Those of one turn of the loop take `HANDSHAKE_TURN_NS`; the others wait for a turn, one of
each address after the other (`TlsSessions`), and are not read meanwhile.

Left out: kernel TLS, which would let `sendfile` go on: Python's `ssl` cannot hand its keys to a socket.
"""

import os
import ssl
from collections import deque
from collections.abc import Callable

from penstock.core.model import MILLISECOND, Instant
from penstock.observability import log
from penstock.runtime.port import Clock, Timer, Timers
from penstock.runtime.tcp import BUFFERS, FileSpan, Part, TcpConnection, TcpProtocol

RECEIVE_BYTES = 64 << 10
# Plaintext that is encrypted at once, and in one turn of the loop.
PIECE_BYTES = 64 << 10
TURN_BYTES = 1 << 20
# Ciphertext that may wait for the socket before more is made.
AHEAD_BYTES = 256 << 10
HANDSHAKE_MS = 10_000
# What handshakes may take of one turn of the loop; one that is begun is finished.
HANDSHAKE_TURN_NS = MILLISECOND


class TlsSessions:
    """What the TLS connections of a listener share: a buffer, timers, and the turns of their handshakes."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        # For what is received: it is taken out of there at once.
        self.scratch = memoryview(bytearray(RECEIVE_BYTES))
        # Who waits for a turn, by address; the address at the front is next.
        self._waiting: dict[str, deque[TlsConnection]] = {}
        self._spent_ns = 0
        self._turn_set = False

    def soon(self, act: Callable[[], None]) -> None:
        self._timers.soon(act)

    def after_ms(self, delay_ms: int, act: Callable[[], None]) -> Timer:
        return self._timers.at(Instant(self._clock.now() + delay_ms * MILLISECOND), act)

    def admits(self, connection: "TlsConnection") -> bool:
        """Whether a handshake goes on now; if not, its `take_turn` is called when it is its turn."""
        if not self._turn_set:
            self._turn_set = True
            self._timers.soon(self._turn)
        if self._spent_ns < HANDSHAKE_TURN_NS:
            return True
        self._waiting.setdefault(connection.host, deque()).append(connection)
        return False

    def timed(self, work: Callable[[], None]) -> None:
        """Do a part of a handshake, and count what it takes."""
        began = self._clock.now()
        work()
        self._spent_ns += self._clock.now() - began

    def _turn(self) -> None:
        self._spent_ns = 0
        while self._waiting and self._spent_ns < HANDSHAKE_TURN_NS:
            host, connections = next(iter(self._waiting.items()))
            del self._waiting[host]
            connection = connections.popleft()
            if connections:
                self._waiting[host] = connections
            connection.take_turn()
        self._turn_set = bool(self._spent_ns)
        if self._turn_set:
            self._timers.soon(self._turn)


class TlsConnection:
    """One client's TLS session."""

    __slots__ = (
        "_handshake_timer",
        "_incoming",
        "_moved",
        "_outgoing",
        "_parts",
        "_paused",
        "_protocol",
        "_queued_bytes",
        "_queued_memory",
        "_reads_later",
        "_sessions",
        "_tcp",
        "_tls",
        "_waits",
        "_welcome",
        "is_open",
        "on_closed",
    )

    def __init__(
        self,
        tcp: TcpConnection,
        context: ssl.SSLContext,
        welcome: Callable[["TlsConnection"], TcpProtocol],
        sessions: TlsSessions,
    ) -> None:
        self._tcp = tcp
        self._welcome = welcome
        self._sessions = sessions
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._protocol: TcpProtocol | None = None
        self._parts: deque[Part] = deque()
        self._queued_bytes = 0
        self._queued_memory = 0
        self._moved: Callable[[int], None] | None = None
        self._paused = False
        self._reads_later = False
        # For a turn to go on with the handshake.
        self._waits = False
        self.is_open = True
        # Called when it has ended.
        self.on_closed: Callable[[], object] | None = None
        self._handshake_timer: Timer | None = sessions.after_ms(HANDSHAKE_MS, self._check_handshake)

    # What the server's protocol sees: a connection.

    @property
    def peer(self) -> str:
        return self._tcp.peer

    @property
    def host(self) -> str:
        """The address of the client, without the port."""
        return self._tcp.peer.rpartition(":")[0]

    @property
    def local(self) -> tuple[str, int]:
        return self._tcp.local

    @property
    def pending_bytes(self) -> int:
        return self._tcp.pending_bytes + self._queued_bytes

    @property
    def held_bytes(self) -> int:
        return self._tcp.held_bytes + self._queued_memory

    @property
    def sent_bytes(self) -> int:
        return self._tcp.sent_bytes

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate (DER), if it was asked for one and has sent it."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def is_logged_in(self) -> bool:
        """Whether its handshake is complete."""
        return self._protocol is not None

    @property
    def cipher(self) -> str:
        """The protocol and the cipher that were agreed on, for logs."""
        agreed = self._tls.cipher()
        return f"{self._tls.version()} {agreed[0] if agreed else ''}"

    def delay_handshake(self, delay_ms: int) -> None:
        """Begin with the handshake no earlier; its time begins then."""
        self._end_handshake()
        self._tcp.pause()
        self._handshake_timer = self._sessions.after_ms(delay_ms, self._begin_handshake)

    def _begin_handshake(self) -> None:
        if self.is_open:
            self._handshake_timer = self._sessions.after_ms(HANDSHAKE_MS, self._check_handshake)
            self._tcp.resume()

    def account(self, moved: Callable[[int], None]) -> None:
        self._moved = moved
        self._tcp.account(moved)

    def pause(self) -> None:
        self._paused = True
        self._tcp.pause()

    def resume(self) -> None:
        self._paused = False
        if not self._reads_later:
            # Bytes that were received and are not decrypted come first.
            self._reads_later = True
            self._sessions.soon(self._read_on)

    def read(self) -> None:
        # The protocol resumes reads, or pauses them again.
        self._paused = False
        if self._protocol is not None and (self._incoming.pending or self._tls.pending()):
            self._decrypt()
        else:
            self._tcp.read()

    def _read_on(self) -> None:
        self._reads_later = False
        if self._may_read():
            self._decrypt()
            if self._may_read():
                self._tcp.resume()

    def _may_read(self) -> bool:
        return self.is_open and not self._paused

    def write(self, parts: list[Part]) -> None:
        if not self.is_open:
            return
        self._parts.extend(parts)
        memory = 0
        for part in parts:
            if isinstance(part, BUFFERS):
                self._queued_bytes += len(part)
                memory += len(part)
            else:
                self._queued_bytes += part.length
        self._hold(memory)
        self._encrypt()

    def close(self) -> None:
        self._tcp.close()

    # What the socket sees: a protocol.

    def get_buffer(self) -> memoryview:
        return self._sessions.scratch

    def buffer_updated(self, count: int) -> None:
        self._incoming.write(self._sessions.scratch[:count])
        if self._protocol is not None:
            self._decrypt()
        elif self._sessions.admits(self):
            self._sessions.timed(self._shake_hands)
        else:
            self._waits = True
            self._tcp.pause()

    def take_turn(self) -> None:
        """Go on with the handshake."""
        self._waits = False
        if not self.is_open:
            return
        self._sessions.timed(self._shake_hands)
        if self._may_read():
            self._tcp.resume()

    def drained(self) -> None:
        if self._parts:
            self._pump()
        elif self._protocol is not None:
            self._protocol.drained()

    def eof_received(self) -> bool:
        if self._protocol is None:
            return self._waits
        return self._incoming.pending > 0 or self._protocol.eof_received()

    def closed(self) -> None:
        self.is_open = False
        self._end_handshake()
        self._parts.clear()
        self._queued_bytes = 0
        self._hold(-self._queued_memory)
        # They hold the connection as well: without them it is freed at once.
        protocol, self._protocol = self._protocol, None
        on_closed, self.on_closed = self.on_closed, None
        if protocol is not None:
            protocol.closed()
        if on_closed is not None:
            on_closed()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, OSError) as error:
            # The alert says why, to a client that reads it.
            self._flush()
            log.info("tls.handshake_failed", peer=self.peer, reason=_reason(error))
            self.close()
            return
        self._flush()
        self._end_handshake()
        self._protocol = self._welcome(self)
        if self._may_read():
            self._decrypt()

    def _end_handshake(self) -> None:
        """It is complete, or never will be: the timer would keep the connection in memory."""
        timer, self._handshake_timer = self._handshake_timer, None
        if timer is not None:
            timer.cancel()

    def _check_handshake(self) -> None:
        if self.is_open and self._protocol is None:
            log.info("tls.handshake_timeout", peer=self.peer)
            self.close()

    def _decrypt(self) -> None:
        """Pass on what was received, until the protocol wants no more for now."""
        protocol = self._protocol
        assert protocol is not None
        try:
            while self._may_read():
                buffer = protocol.get_buffer()
                if buffer is None:
                    return
                # With a buffer, it returns how many bytes it has put there.
                count: int = self._tls.read(len(buffer), buffer)  # type: ignore[assignment]
                if not count:
                    break
                protocol.buffer_updated(count)
            else:
                return
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLZeroReturnError:
            pass
        except (ssl.SSLError, OSError) as error:
            log.info("tls.failed", peer=self.peer, reason=_reason(error))
        # The client has said goodbye, or nothing that can be read.
        self.close()

    def _pump(self) -> None:
        """Go on with what is queued, and tell the protocol when nothing is."""
        self._encrypt()
        if self.is_open and not self.pending_bytes and self._protocol is not None:
            self._protocol.drained()

    def _encrypt(self) -> None:
        """Encrypt what is queued as far as the socket keeps up, and leave the loop to others in between."""
        left = TURN_BYTES
        try:
            while self._parts and self._tcp.pending_bytes < AHEAD_BYTES:
                if left <= 0:
                    self._sessions.soon(self._pump)
                    return
                piece = self._next_piece()
                left -= len(piece)
                self._tls.write(piece)
                self._flush()
                if not self.is_open:
                    return
        except (ssl.SSLError, OSError) as error:
            # A file that ends before its span does, or a session that is broken.
            log.info("tls.failed", peer=self.peer, reason=_reason(error))
            self.close()

    def _next_piece(self) -> bytes | bytearray | memoryview:
        """What is encrypted next: small parts together, large ones bit by bit."""
        parts = self._parts
        part = parts.popleft()
        if not isinstance(part, BUFFERS):
            return self._piece_of(part)
        if len(part) > PIECE_BYTES:
            parts.appendleft(memoryview(part)[PIECE_BYTES:])
            part = memoryview(part)[:PIECE_BYTES]
        elif parts:
            together = bytearray(part)
            while parts:
                following = parts[0]
                if not isinstance(following, BUFFERS) or len(together) + len(following) > PIECE_BYTES:
                    break
                together += following
                parts.popleft()
            part = together
        self._queued_bytes -= len(part)
        self._hold(-len(part))
        return part

    def _piece_of(self, span: FileSpan) -> bytes:
        rest = span if isinstance(span, _SpanRest) else _SpanRest(span, span.position, span.length)
        content = os.pread(rest.fileno(), min(PIECE_BYTES, rest.length), rest.position)
        if not content:
            # It was truncated under us, and the client waits for bytes that do not exist any more.
            raise ConnectionAbortedError("a log file was truncated while it was being sent")
        if len(content) < rest.length:
            left = _SpanRest(rest.span, rest.position + len(content), rest.length - len(content))
            self._parts.appendleft(left)
        self._queued_bytes -= len(content)
        return content

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._tcp.write([self._outgoing.read()])

    def _hold(self, change: int) -> None:
        self._queued_memory += change
        if self._moved is not None and change:
            self._moved(change)


class _SpanRest:
    """What is left of a span after a part of it was encrypted."""

    __slots__ = ("length", "position", "span")

    def __init__(self, span: FileSpan, position: int, length: int) -> None:
        self.span = span
        self.position = position
        self.length = length

    def fileno(self) -> int:
        return self.span.fileno()

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.length, self.position)


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__
