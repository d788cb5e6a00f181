"""TCP connections of clients, on raw non-blocking sockets.

A connection passes received bytes to its protocol, in a buffer that the protocol chose, and
takes what should be sent as a list of parts: buffers, and spans of files. On a plain
connection a span leaves by `sendfile(2)`, so its bytes never enter Python; a TLS connection
would read the span instead. Nothing here knows an application protocol.

    socket readable ── protocol.get_buffer() ── recv_into ── protocol.buffer_updated(n)
                       (None: not now)
    protocol ── connection.write(parts) ── sendmsg / sendfile, as far as the socket takes ──
                                    the rest when it is writable again; protocol.drained()

A connection does not bound what is written to it: the protocol checks `pending_bytes` and
pauses reads (`pause`), which makes TCP slow the client down. Buffers of incomplete requests are
claimed from a shared `RequestMemoryLimit`; the bytes of unread responses are reported through
`account` to a node's `ResponseMemoryLimit`.

The other side may leave at any time: while reads are paused, or in the same turn as its last request.
The loop cannot be asked to watch for that alone, and forgets a socket that was reset after one
callback. So every connection is also in an epoll of the acceptor's own, which reports nothing but
ends (`HangupWatch`), and the loop watches that one descriptor.

    reset             what arrived before it is read for up to `RESET_SECONDS`, then it is closed
    an end was read   closed at once, or after others: `CLOSED_PER_TURN` in each turn of the loop
    closed, reading   the reader finds the end by itself, behind the last bytes
    closed, paused    nothing unread: closed now; else when that was served, or after `ENDED_SECONDS`

Left out: TLS, which comes with security, and the io_uring of the future.
"""

import asyncio
import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from penstock.core.ip_address import canonical_address
from penstock.core.model import PenstockError
from penstock.observability import log
from penstock.runtime.port import Address, AddressUnavailable

Buffer: TypeAlias = bytes | bytearray | memoryview
BUFFERS = (bytes, bytearray, memoryview)
# One connection may not keep the loop from the others for longer than this many bytes.
TURN_BYTES_MAX = 4 << 20
# sendmsg takes at most IOV_MAX (1024) buffers.
GATHER_MAX = 512
SENDFILE_BYTES_MAX = 1 << 20
# Spans cost two system calls each, and often the opening of a file, however short they are.
SPANS_PER_TURN_MAX = 64
# How often a connection that was reset is read before others have their turn.
RESET_READS_MAX = 16
# How long what a client sent before it left, or before it reset the connection, may wait to be served.
ENDED_SECONDS = 10.0
RESET_SECONDS = 1.0
# How many ends are noticed per turn of the loop.
ENDS_PER_TURN = 64
# Of connections whose clients have left, so many are closed per turn: that costs some 50 µs each, and a
# client may leave ten thousand at once.
CLOSED_PER_TURN = 32
# Out of descriptors or memory: new connections wait in the kernel's queue for a while.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class FileSpan(Protocol):
    """A range of a file, to be sent without being read."""

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    def fileno(self) -> int:
        """The descriptor to send from, requested again before every use."""

    def read(self) -> bytes:
        """The bytes themselves, for connections that cannot send a file."""


Part: TypeAlias = Buffer | FileSpan


class TcpConnection(Protocol):
    """One open connection to a client."""

    @property
    def peer(self) -> str:
        """The client's address and port, for logs."""

    @property
    def local(self) -> tuple[str, int]:
        """The address that the client connected to."""

    @property
    def pending_bytes(self) -> int:
        """What was written and has not been taken by the socket yet."""

    @property
    def held_bytes(self) -> int:
        """The part of that in memory: without file spans."""

    @property
    def sent_bytes(self) -> int:
        """What the socket has taken since the connection was opened."""

    def account(self, moved: Callable[[int], None]) -> None:
        """Call `moved` with every change of `held_bytes`, from now on."""

    def write(self, parts: list[Part]) -> None:
        """Send all parts in order, now or when the socket takes them. A closed connection drops them."""

    def pause(self) -> None:
        """Read no more until `resume`."""

    def resume(self) -> None: ...

    def read(self) -> None:
        """Read once now, paused or not, if there is something."""

    def close(self) -> None:
        """End the connection; what is pending is dropped. The protocol's `closed` is called once."""


class TcpProtocol(Protocol):
    """The server's side of a connection."""

    def get_buffer(self) -> memoryview | None:
        """Where the next bytes should go; never empty. Valid until `buffer_updated` returns.

        None: nowhere for now, and the protocol has paused reads.
        """

    def buffer_updated(self, count: int) -> None:
        """`count` bytes were written to the buffer."""

    def drained(self) -> None:
        """All that was pending has been taken by the socket."""

    def eof_received(self) -> bool:
        """The other side has closed while reads were paused, and nothing of it is left in the socket.

        Returns whether the protocol itself has something of it left to serve; otherwise the connection
        is closed now.
        """

    def closed(self) -> None:
        """The connection has ended, whichever side closed it. Called exactly once."""


class TcpListener(Protocol):
    """A listening address for clients."""

    @property
    def address(self) -> Address:
        """The address, with the actual port for port 0."""

    def stop_accepting(self) -> None:
        """Take no new connections; those that exist stay."""

    def close(self) -> None:
        """Close the listener and every connection that it accepted."""


# Opens a listener; the function it gets returns the protocol for every new connection.
Listen: TypeAlias = Callable[[Address, Callable[[TcpConnection], TcpProtocol]], TcpListener]


class SocketTcpConnection:
    """One connection, created by the `Acceptor`, which also sets its protocol."""

    __slots__ = (
        "_deadline",
        "_fd",
        "_handler",
        "_has_ended",
        "_has_left",
        "_is_reset",
        "_loop",
        "_moved",
        "_on_closed",
        "_on_left",
        "_parts",
        "_paused",
        "_reading",
        "_socket",
        "_writing",
        "held_bytes",
        "host",
        "local",
        "peer",
        "pending_bytes",
        "sent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        on_closed: Callable[["SocketTcpConnection"], None],
        on_left: Callable[["SocketTcpConnection"], None],
    ) -> None:
        """`on_left` has the connection closed: its end was read."""
        self._loop = loop
        self._socket = connection
        self._fd = connection.fileno()
        self._on_closed = on_closed
        self._on_left = on_left
        self._parts: deque[Part] = deque()
        self._paused = False
        self._reading = False
        self._writing = False
        # The other side has closed, and perhaps has even reset the connection.
        self._has_ended = False
        self._is_reset = False
        # Its end was read, too: it is closed as soon as it is its turn.
        self._has_left = False
        self._deadline: asyncio.TimerHandle | None = None
        self._handler: TcpProtocol | None = None
        self._moved: Callable[[int], None] | None = None
        self.pending_bytes = 0
        self.held_bytes = 0
        self.sent_bytes = 0
        host, port = connection.getsockname()[:2]
        self.local: tuple[str, int] = (canonical_address(host), port)
        host, port = connection.getpeername()[:2]
        self.host = canonical_address(host)
        self.peer = f"{self.host}:{port}"

    def start(self, handler: TcpProtocol) -> None:
        """Start reading, unless the protocol has paused already."""
        self._handler = handler
        if not self._paused:
            self.resume()

    @property
    def descriptor(self) -> int:
        return self._fd

    def pause(self) -> None:
        self._paused = True
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
        if self._has_ended and self._handler is not None:
            self._loop.call_soon(self._check_end)

    def resume(self) -> None:
        self._paused = False
        if self._has_left:
            return
        if self._is_reset:
            self._loop.call_soon(self._read_rest)
        elif not self._reading and self._handler is not None:
            self._reading = True
            self._loop.add_reader(self._fd, self.read)

    def hung_up(self, *, reset: bool) -> None:
        """The other side has closed the connection, or has reset it."""
        if self._handler is None or self._has_left:
            return
        self._has_ended = True
        if not reset:
            self._check_end()
        elif not self._is_reset:
            self._is_reset = True
            # The loop has forgotten this socket, or is about to.
            self._stop_polling()
            self._close_after(RESET_SECONDS)
            self._read_rest()

    def _stop_polling(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _read_rest(self) -> None:
        """Read what came before a reset; its error ends the connection."""
        for _ in range(RESET_READS_MAX):
            if self._handler is None or self._paused or self._has_left:
                break
            self.read()
        else:
            self._loop.call_soon(self._read_rest)

    def _check_end(self) -> None:
        """A reader finds the end by itself; while reads are paused, somebody has to look."""
        handler = self._handler
        if handler is None or not self._paused or self._has_left:
            return
        try:
            has_more = bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            has_more = False
        if not has_more and not handler.eof_received():
            self.close()
        elif self._deadline is None:
            self._close_after(ENDED_SECONDS)

    def _close_after(self, seconds: float) -> None:
        """Close the connection after a while, however much of it is left."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self.close)

    def read(self) -> None:
        handler = self._handler
        if handler is None or self._has_left:
            return
        buffer = handler.get_buffer()
        if buffer is None:
            return
        try:
            count = self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count == 0:
            self._has_left = True
            self._stop_polling()
            self._on_left(self)
        else:
            handler.buffer_updated(count)

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
        turn_end, spans_left = self.sent_bytes + TURN_BYTES_MAX, SPANS_PER_TURN_MAX
        # What is held was counted before if something was pending; then it is not counted part by part again.
        was_pending, released = self._writing, 0
        try:
            while self._parts and self.sent_bytes < turn_end:
                if isinstance(self._parts[0], BUFFERS):
                    count = self._send_buffers()
                    released += count
                elif spans_left:
                    spans_left -= 1
                    count = self._send_span()
                else:
                    break
                self.sent_bytes += count
                self.pending_bytes -= count
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, PenstockError):
            # The client disconnected, or the file is gone: only this connection is affected.
            self.close()
            return
        if self._parts or self._writing:
            self._want_writable(bool(self._parts))
        if self._parts or self.held_bytes:
            # Usually nothing is left, so it is not counted when written.
            self._hold(self.held_bytes - released if was_pending else _memory(self._parts))

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
            raise ConnectionAbortedError("a log file was truncated while it was being sent")
        if count == span.length:
            self._parts.popleft()
        else:
            self._parts[0] = _Rest(span, count)
        return count

    def _want_writable(self, wanted: bool) -> None:
        if wanted and not self._writing:
            if self._is_reset or self._has_left:
                return
            self._loop.add_writer(self._fd, self._writable)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._fd)
        self._writing = wanted

    def close(self) -> None:
        handler, self._handler = self._handler, None
        if handler is None:
            return
        self._paused = True
        self._stop_polling()
        if self._deadline is not None:
            self._deadline.cancel()
        self._parts.clear()
        self._hold(0)
        self.pending_bytes = 0
        self._on_closed(self)
        self._socket.close()
        handler.closed()


def _after(parts: list[Part], sent: int) -> list[Part]:
    """The rest of these buffers after `sent` bytes."""
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

    def __init__(self, span: FileSpan, sent: int) -> None:
        self._span: FileSpan = span._span if isinstance(span, _Rest) else span
        self.position = span.position + sent
        self.length = span.length - sent

    def fileno(self) -> int:
        return self._span.fileno()

    def read(self) -> bytes:
        return self._span.read()[-self.length :]


class LeftConnections:
    """Connections whose clients have left, closed a few per turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[SocketTcpConnection] = deque()
        # How many may still be closed in this turn.
        self._left = CLOSED_PER_TURN

    def add(self, connection: SocketTcpConnection) -> None:
        """Close it now, or when it is its turn."""
        if self._left == CLOSED_PER_TURN:
            self._loop.call_soon(self._turn)
        if self._left:
            self._left -= 1
            connection.close()
        else:
            self._waiting.append(connection)

    def _turn(self) -> None:
        self._left = CLOSED_PER_TURN
        waiting = self._waiting
        for _ in range(min(len(waiting), CLOSED_PER_TURN)):
            self.add(waiting.popleft())


class HangupWatch:
    """An epoll that reports only ends of connections, as one descriptor of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._watched: dict[int, SocketTcpConnection] = {}
        loop.add_reader(self._epoll.fileno(), self._report)

    def add(self, connection: SocketTcpConnection) -> None:
        # Errors and hang-ups are always reported. Edge-triggered: once each, and not until it is closed.
        self._watched[connection.descriptor] = connection
        self._epoll.register(connection.descriptor, select.EPOLLRDHUP | select.EPOLLET)

    def remove(self, connection: SocketTcpConnection) -> None:
        if self._watched.pop(connection.descriptor, None) is not None:
            self._epoll.unregister(connection.descriptor)

    def _report(self) -> None:
        for descriptor, events in self._epoll.poll(0, ENDS_PER_TURN):
            connection = self._watched.get(descriptor)
            if connection is not None:
                connection.hung_up(reset=bool(events & (select.EPOLLERR | select.EPOLLHUP)))

    def close(self) -> None:
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()


SHORTAGE_REPORT_SECONDS = 10.0
# What the kernel holds of a connection behind what is on its way.
UNSENT_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class ConnectionQuotaLimits:
    """How many connections the listeners of a node have together, under Kafka's names in its settings."""

    connections_max: int = 10_000
    per_address_max: int = 2**31 - 1
    # For single addresses, in place of the number above.
    overrides: Mapping[str, int] = field(default_factory=dict)
    opened_per_second_max: int = 2**31 - 1


class ConnectionQuotas:
    """The connections of a node, by address, and whether one more is accepted."""

    def __init__(self, limits: ConnectionQuotaLimits | None = None) -> None:
        self.limits = limits or ConnectionQuotaLimits()
        self._by_address: dict[str, int] = {}
        self._credit = float(self.limits.opened_per_second_max)
        self._credited_at = 0.0
        self.connections = 0
        self.refused = 0
        # Called before a connection is refused, with its address if that has too many, or None if all have
        # too many together: it may close another one.
        self.make_room: Callable[[str | None], None] | None = None

    def of(self, address: str) -> int:
        """How many connections an address has."""
        return self._by_address.get(address, 0)

    def open(self, address: str) -> bool:
        """Count a new connection; False if it is one too many, and is not counted."""
        limits = self.limits
        address_max = limits.overrides.get(address, limits.per_address_max)
        self._credit -= 1
        if self.make_room is not None:
            if self.of(address) >= address_max:
                self.make_room(address)
            elif self.connections >= limits.connections_max:
                self.make_room(None)
        own = self.of(address)
        if self.connections >= limits.connections_max or own >= address_max:
            self.refused += 1
            return False
        self.connections += 1
        self._by_address[address] = own + 1
        return True

    def close(self, address: str) -> None:
        self.connections -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]

    def delay_seconds(self, now: float) -> float:
        """How long to wait before the next connection is accepted."""
        rate = self.limits.opened_per_second_max
        self._credit = min(float(rate), self._credit + (now - self._credited_at) * rate)
        self._credited_at = now
        return max(0.0, (1 - self._credit) / rate)


@dataclass(frozen=True, slots=True)
class AcceptorOptions:
    """Limits of one listener."""

    response_memory: int = 1024
    accepts_per_turn: int = 16
    retry_seconds: float = 0.1
    # A client whose descriptor is not below this number is turned away: the rest is for logs.
    descriptors_below: int = 1 << 30


class Acceptor:
    """A listening socket. `welcome` returns the protocol of every new connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        welcome: Callable[[SocketTcpConnection], TcpProtocol],
        options: AcceptorOptions | None = None,
        quotas: ConnectionQuotas | None = None,
    ) -> None:
        """`quotas` may be shared with other listeners."""
        self._loop = loop
        self._welcome = welcome
        self._options = options or AcceptorOptions()
        self._quotas = quotas or ConnectionQuotas()
        self._pipes: dict[SocketTcpConnection, None] = {}
        self._socket = _listen(address, self._options.response_memory)
        self._hangups = HangupWatch(loop)
        self._left = LeftConnections(loop)
        host, port = self._socket.getsockname()[:2]
        self.address = Address(host, port)
        self._open = True
        self._paused = False
        # Clients that were turned away since that was last said, and when it may be said again.
        self._turned_away = 0
        self._report_at = 0.0
        self._loop.add_reader(self._socket, self._acceptable)

    @property
    def connections(self) -> int:
        return len(self._pipes)

    @property
    def descriptor(self) -> int:
        """The listening socket, for a process that is to accept from it."""
        return self._socket.fileno()

    def pause(self) -> None:
        """Leave new connections in the kernel's queue, or to another process that has the socket."""
        if self._open and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        """Accept again."""
        if self._open and self._paused:
            self._paused = False
            self._loop.add_reader(self._socket, self._acceptable)

    def pipes(self) -> list[SocketTcpConnection]:
        """The open connections, for a sweep."""
        return list(self._pipes)

    def _acceptable(self) -> None:
        for _ in range(self._options.accepts_per_turn):
            delay_seconds = self._quotas.delay_seconds(self._loop.time())
            if delay_seconds:
                self._rest_for(delay_seconds)
                return
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._report_shortage()
                self._rest_for(self._options.retry_seconds)
                return
            self._take(connection, canonical_address(peer[0]))

    def _take(self, connection: socket.socket, host: str) -> None:
        if connection.fileno() >= self._options.descriptors_below:
            connection.close()
            self._report_shortage()
            return
        if not self._quotas.open(host):
            connection.close()
            return
        connection.setblocking(False)
        try:
            _tune(connection)
            pipe = SocketTcpConnection(self._loop, connection, self._forget, self._left.add)
        except OSError:  # the client left while it waited in the queue
            self._quotas.close(host)
            connection.close()
            return
        self._pipes[pipe] = None
        self._hangups.add(pipe)
        pipe.start(self._welcome(pipe))

    def _forget(self, pipe: SocketTcpConnection) -> None:
        self._pipes.pop(pipe, None)
        self._quotas.close(pipe.host)
        self._hangups.remove(pipe)

    def _rest_for(self, seconds: float) -> None:
        """Leave new connections in the kernel's queue for a while."""
        self._loop.remove_reader(self._socket)
        self._loop.call_later(seconds, self._wake)

    def _report_shortage(self) -> None:
        """Say that clients are turned away, once in a while."""
        self._turned_away += 1
        if self._loop.time() < self._report_at:
            return
        self._report_at = self._loop.time() + SHORTAGE_REPORT_SECONDS
        log.warning(
            "acceptor.out_of_descriptors",
            address=str(self.address),
            connections=len(self._pipes),
            turned_away=self._turned_away,
            reason="the limit on open files is nearly reached; what is left is kept for logs",
        )
        self._turned_away = 0

    def _wake(self) -> None:
        if self._open and not self._paused:
            self._loop.add_reader(self._socket, self._acceptable)

    def stop_accepting(self) -> None:
        """Take no new connections; those that exist stay."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def close(self) -> None:
        """Close the listener and every connection that it accepted."""
        self.stop_accepting()
        for pipe in self.pipes():
            pipe.close()
        self._hangups.close()


def _tune(connection: socket.socket) -> None:
    """Disable Nagle, and notice within two minutes that the other machine is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def _limit_unsent(door: socket.socket) -> None:
    """Have the kernel hold little for clients that do not read; every connection inherits it.

    It takes 4 MB of each otherwise. Some hundred of them, and the kernel is short of memory for TCP: then all
    connections of the machine crawl, those to other nodes too. What is on its way does not count, so that
    nobody gets anything later.
    """
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)


def _listen(address: Address, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setblocking(False)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _limit_unsent(door)
        door.bind((address.host, address.port))
        door.listen(backlog)
    except OSError as error:
        door.close()
        raise AddressUnavailable(f"cannot listen on {address}: {error.strerror or error}") from error
    return door
