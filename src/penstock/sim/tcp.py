"""TCP between the hosts of clients and simulated nodes: byte streams, as bad as real ones.

    client host                         node
    SimulatedSocket ── requests ──▶ SimulatedTcpConnection ── TcpProtocol: the Kafka connection
                    ◀─ responses ──

Nothing is lost, doubled or reordered on one connection. But bytes take their time; they arrive in
pieces that do not match frames, and several frames at once; what meets a cut is sent again for a
few seconds, even if the client has closed its end meanwhile, so that a request may arrive long after
its sender has asked another node. A node that writes more than the other end has taken keeps the
rest, and is notified when it was sent. When a process ends, its kernel resets its connections; a
machine without power sends nothing, and one that is up again resets connections it does not know.

Spans of files are read when the connection takes them, as sendfile does. When a process ends, what
the connection has not taken is lost; what it has taken arrives.

Left out: the handshake (a connection exists when its first bytes arrive), and a bound on what a
client sends to a node that does not read.
"""

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from penstock.core.model import MILLISECOND, SECOND, PenstockError
from penstock.runtime import Address, AddressUnavailable, Callback
from penstock.runtime.tcp import BUFFERS, ENDED_SECONDS, Part, TcpConnection, TcpProtocol
from penstock.sim.incarnation import Incarnation
from penstock.sim.network import SimulatedNetwork

FIRST_RETRY_NS = 200 * MILLISECOND
RETRIES_MAX = 3
# How often what was sent at once arrives in pieces, and how often a node does not read at once.
SPLIT = 0.08
REST = 0.08
REST_NS = 3 * MILLISECOND
ENDED_NS = int(ENDED_SECONDS * SECOND)
# How much one end sends before the other has taken it.
WINDOWS = (1_000, 16_000, 64_000, 64_000)


class SocketHandler(Protocol):
    """The client's side of a connection."""

    def written(self, content: bytes) -> None:
        """The node has written these bytes; they have not arrived yet."""

    def received(self, content: bytes) -> None: ...

    def closed(self) -> None:
        """The node has closed the connection, or is gone."""


class _Direction:
    """One direction of a connection."""

    __slots__ = ("_held", "_last_arrival", "_network", "_source", "_target", "_tries", "is_dead")

    def __init__(self, network: SimulatedNetwork, source: str, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._held: deque[Callback] = deque()
        self._last_arrival = 0
        self._tries = 0
        self.is_dead = False

    def carry(self, arrive: Callback) -> None:
        scheduler = self._network.scheduler
        arrival = max(scheduler.now + self._network.delay(), self._last_arrival)
        self._last_arrival = arrival
        scheduler.at(arrival, self._arrive, arrive)

    def _arrive(self, arrive: Callback) -> None:
        if self.is_dead:
            return
        if not self._held and not self._network.is_cut(self._source, self._target):
            arrive()
            return
        self._held.append(arrive)
        if len(self._held) == 1:
            self._tries = 0
            self._network.scheduler.after(FIRST_RETRY_NS, self._again)

    def _again(self) -> None:
        if not self._network.is_cut(self._source, self._target):
            while self._held:
                self._held.popleft()()
        elif self._tries == RETRIES_MAX:
            self.is_dead = True
            self._held.clear()
        else:
            self._tries += 1
            self._network.scheduler.after(FIRST_RETRY_NS << self._tries, self._again)


class SimulatedTcp:
    """Every listener and connection of a world."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self._listeners: dict[Address, SimulatedTcpListener] = {}
        self._sockets: dict[SimulatedSocket, None] = {}
        network.when_process_ends(self._process_ended)

    def listen(
        self, life: Incarnation, address: Address, welcome: Callable[[TcpConnection], TcpProtocol]
    ) -> "SimulatedTcpListener":
        """Open a listener of a live node; it ends with that incarnation at the latest."""
        if address.host != life.name or self.listener(address) is not None:
            raise AddressUnavailable(f"cannot listen on {address}")
        self._listeners[address] = listener = SimulatedTcpListener(life, address, welcome)
        return listener

    def listener(self, address: Address) -> "SimulatedTcpListener | None":
        found = self._listeners.get(address)
        return found if found is not None and found.is_accepting and found.incarnation.alive else None

    def connect(self, host: str, address: Address, handler: SocketHandler) -> "SimulatedSocket":
        socket = SimulatedSocket(self, host, address, handler)
        self._sockets[socket] = None
        return socket

    def forget(self, socket: "SimulatedSocket") -> None:
        self._sockets.pop(socket, None)

    def _process_ended(self, host: str) -> None:
        for socket in list(self._sockets):
            if socket.far_host == host:
                socket.process_ended()


class SimulatedTcpListener:
    """Where one incarnation of a node accepts clients."""

    def __init__(
        self, life: Incarnation, address: Address, welcome: Callable[[TcpConnection], TcpProtocol]
    ) -> None:
        self.incarnation = life
        self.address = address
        self.is_accepting = True
        self._welcome = welcome
        self._connections: dict[SimulatedTcpConnection, None] = {}

    def take(self, connection: "SimulatedTcpConnection") -> None:
        """A client has connected."""
        if not self.is_accepting:
            connection.refuse()
            return
        self._connections[connection] = None
        connection.start(self._welcome(connection))

    def forget(self, connection: "SimulatedTcpConnection") -> None:
        self._connections.pop(connection, None)

    def stop_accepting(self) -> None:
        self.is_accepting = False

    def close(self) -> None:
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close()


class SimulatedSocket:
    """A client's end of a connection."""

    __slots__ = (
        "_address",
        "_back",
        "_connection",
        "_handler",
        "_has_gap",
        "_out",
        "_tcp",
        "host",
        "is_closed",
    )

    def __init__(self, tcp: SimulatedTcp, host: str, address: Address, handler: SocketHandler) -> None:
        self._tcp = tcp
        self._address = address
        self._handler = handler
        self._out = _Direction(tcp.network, host, address.host)
        self._back = _Direction(tcp.network, address.host, host)
        self._connection: SimulatedTcpConnection | None = None
        # Something was sent where nobody took it: what comes behind it belongs to nothing.
        self._has_gap = False
        self.host = host
        self.is_closed = False

    @property
    def far_host(self) -> str:
        return self._address.host

    def send(self, content: bytes) -> None:
        for segment in _segments(content, self._tcp.network.random):
            self._out.carry(partial(self._reach, segment))

    def close(self) -> None:
        """Close: the node sees the end after everything that was sent."""
        if not self.is_closed:
            self._end()
            self._out.carry(partial(self._reach, b""))

    def _end(self) -> None:
        self.is_closed = True
        self._tcp.forget(self)

    def _reach(self, segment: bytes) -> None:
        """Bytes, or the end of all bytes, have come to the node's machine."""
        network = self._tcp.network
        if network.is_dark(self.far_host):
            self._has_gap = True  # no machine is up to reset it
            return
        connection = self._connection
        if connection is None:
            listener = None if self._has_gap else self._tcp.listener(self._address)
            if listener is None:
                self._has_gap = True
                self.reset()
                return
            connection = self._connection = SimulatedTcpConnection(self, listener, network)
            listener.incarnation.deliver_on(connection, "connect", self.host, listener.take, connection)
        if connection.incarnation.alive:
            connection.incarnation.deliver_on(
                connection, "bytes", zlib.crc32(segment), connection.arrived, segment
            )
        else:
            self.reset()

    def carry(self, content: bytes) -> None:
        """Take what the node has sent."""
        for segment in _segments(content, self._tcp.network.random):
            self._back.carry(partial(self._arrive, segment))

    def written(self, content: bytes) -> None:
        self._handler.written(content)

    def _arrive(self, segment: bytes) -> None:
        connection = self._connection
        assert connection is not None
        if connection.acknowledged(len(segment)):
            tell = connection.incarnation.deliver_on
            self._out.carry(partial(tell, connection, "acknowledged", 0, connection.room))
        if not self.is_closed:
            self._handler.received(segment)

    def reset(self) -> None:
        """The node's end is gone, and its machine resets the connection."""
        self._back.carry(self._ended)

    def process_ended(self) -> None:
        """The kernel of that machine closes its connections."""
        if self._connection is not None:
            self.reset()

    def _ended(self) -> None:
        if not self.is_closed:
            self._end()
            self._handler.closed()


class SimulatedTcpConnection:
    """The node's end of a connection: what its Kafka listener sees."""

    __slots__ = (
        "_handler",
        "_has_ended",
        "_head_sent",
        "_in_flight",
        "_inbox",
        "_is_ending",
        "_is_resting",
        "_listener",
        "_moved",
        "_network",
        "_parts",
        "_paused",
        "_socket",
        "_window",
        "held_bytes",
        "incarnation",
        "local",
        "peer",
        "pending_bytes",
        "sent_bytes",
    )

    def __init__(
        self, socket: SimulatedSocket, listener: SimulatedTcpListener, network: SimulatedNetwork
    ) -> None:
        self._socket = socket
        self._listener = listener
        self._network = network
        self._window = network.random.choice(WINDOWS)
        self._handler: TcpProtocol | None = None
        self._moved: Callable[[int], None] | None = None
        self._inbox = bytearray()
        self._has_ended = False
        self._is_ending = False
        self._is_resting = False
        self._paused = False
        self._parts: deque[Part] = deque()
        self._head_sent = 0  # of the first of these
        self._in_flight = 0
        self.incarnation = listener.incarnation
        self.local: tuple[str, int] = listener.address
        self.peer = f"{socket.host}:{network.free_port()}"
        self.pending_bytes = 0
        self.held_bytes = 0
        self.sent_bytes = 0

    def start(self, handler: TcpProtocol) -> None:
        """Begin to read, unless the handler has asked for a pause already."""
        self._handler = handler

    def refuse(self) -> None:
        """Nobody listens any more."""
        self._socket.reset()

    def account(self, moved: Callable[[int], None]) -> None:
        self._moved = moved

    def pause(self) -> None:
        self._paused = True
        if self._has_ended and self._handler is not None:
            self._read_later(0)

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._inbox or self._has_ended:
                self._read_later(0)

    def read(self) -> None:
        if self._inbox:
            self._read_once()

    def arrived(self, segment: bytes) -> None:
        """More bytes, or none any more, are in the kernel of this machine."""
        if self._handler is None:
            return
        if segment:
            self._inbox += segment
        else:
            self._has_ended = True
        if self._is_resting:
            return
        luck = self._network.random
        if luck.random() < REST:
            self._read_later(int(luck.random() * REST_NS))
        else:
            self._read()

    def _read_later(self, delay_ns: int) -> None:
        if not self._is_resting:
            self._is_resting = True
            self.incarnation.later_on(delay_ns, self, "readable", len(self._inbox), self._wake)

    def _wake(self) -> None:
        self._is_resting = False
        self._read()

    def _read(self) -> None:
        while self._inbox and not self._paused and self._handler is not None:
            self._read_once()
        if self._has_ended:
            self._check_end()

    def _read_once(self) -> None:
        buffer = None if self._handler is None else self._handler.get_buffer()
        if self._handler is None or buffer is None:
            return
        inbox = self._inbox
        count = min(len(buffer), len(inbox))
        buffer[:count] = inbox[:count]
        del inbox[:count]
        self._handler.buffer_updated(count)

    def _check_end(self) -> None:
        """The end of the client is seen behind its last bytes, whether reads are paused or not."""
        if not self._inbox and (
            not self._paused or self._handler is None or not self._handler.eof_received()
        ):
            self.close()
        elif not self._is_ending:
            self._is_ending = True
            self.incarnation.later_on(ENDED_NS, self, "ended", len(self._inbox), self.close)

    def write(self, parts: list[Part]) -> None:
        if self._handler is None:
            return
        try:
            content = _whole(parts)
        except (OSError, PenstockError):
            # The file is gone: the rest of the response cannot be sent.
            self.close()
            return
        self._socket.written(content)
        if not self._parts and self._in_flight + len(content) <= self._window:
            self._in_flight += len(content)
            self.sent_bytes += len(content)
            self._socket.carry(content)
            return
        self.pending_bytes += len(content)
        self._parts.extend(parts)
        self._send()

    def _send(self) -> None:
        """Send as much as the other end has room for."""
        taken: list[bytes] = []
        try:
            while self._parts and self._in_flight < self._window:
                taken.append(self._take(self._window - self._in_flight))
        except (OSError, PenstockError):
            self.close()
            return
        if taken:
            self._socket.carry(b"".join(taken))
        if self._parts or self.held_bytes:
            memory = sum(len(part) for part in self._parts if isinstance(part, BUFFERS))
            head_is_memory = bool(self._parts) and isinstance(self._parts[0], BUFFERS)
            self._hold(memory - (self._head_sent if head_is_memory else 0))

    def _take(self, room: int) -> bytes:
        content = _content(self._parts[0])
        size = len(content)
        end = min(size, self._head_sent + room)
        taken = bytes(content[self._head_sent : end])
        if end == size:
            self._parts.popleft()
            self._head_sent = 0
        else:
            self._head_sent = end
        self._in_flight += len(taken)
        self.pending_bytes -= len(taken)
        self.sent_bytes += len(taken)
        return taken

    def _hold(self, held: int) -> None:
        change, self.held_bytes = held - self.held_bytes, held
        if self._moved is not None and change:
            self._moved(change)

    def acknowledged(self, count: int) -> bool:
        """So much has arrived at the other end. True: there is more to send."""
        self._in_flight -= count
        return bool(self._parts)

    def room(self) -> None:
        """The other end can take more."""
        self._send()
        if self._handler is not None and not self._parts:
            self._handler.drained()

    def close(self) -> None:
        handler, self._handler = self._handler, None
        if handler is None:
            return
        self._parts.clear()
        self._hold(0)
        self.pending_bytes = 0
        self._listener.forget(self)
        self._socket.reset()
        handler.closed()


def _whole(parts: list[Part]) -> bytes:
    return b"".join([_content(part) for part in parts])


def _content(part: Part) -> bytes | bytearray | memoryview:
    if isinstance(part, BUFFERS):
        return part
    content = part.read()
    if len(content) < part.length:
        raise ConnectionAbortedError("a file was truncated while it was being sent")
    return content


def _segments(content: bytes, luck: random.Random) -> Iterator[bytes]:
    """What was sent at once, as it arrives: whole as a rule, now and then in pieces."""
    while len(content) > 1 and luck.random() < SPLIT:
        at = luck.randrange(1, len(content))
        yield content[:at]
        content = content[at:]
    yield content
