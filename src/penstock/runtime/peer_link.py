"""One link to a peer over a raw non-blocking socket.

    WAITING  (accepted: their hello comes first)  --\
    CALLING  (connecting) -- GREETING (ours is sent) -- OPEN -- CLOSED

With TLS its handshake comes before the hellos, and the node that the certificate is of must be the one
that says hello (see `peer_tls`).

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
import ssl
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from penstock.core.model import SECOND, Instant, NodeId, ProtocolError
from penstock.observability import log as events
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
from penstock.runtime.peer_tls import (
    HANDSHAKE_BYTE,
    CertificateRefusal,
    PeerTls,
    TlsSession,
    tls_reason,
)
from penstock.runtime.port import Buffer, Callback, Clock, CloseReason, LinkHandler, NodeIdentity, Timer
from penstock.runtime.timers import Deliver

LENGTH = struct.Struct(">I")
KEEP_ALIVE = LENGTH.pack(0)
# From here on copying a frame costs more than a system call of its own.
AT_ONCE_BYTES = 64 * 1024
_BUFFERS_PER_CALL = 256
# So much is read of a link in one turn of the loop: enough for bulk replication where turns are long, since
# clients keep the node busy, and little enough that a turn over many links stays short. Of a large frame the
# kernel of the sender has the next part as soon as there is room for it: then a short read is not the last.
_READ_BYTES = 256 * 1024
_TURN_BYTES_MAX = 2 * 1024 * 1024
_LARGE_FRAME_BYTES = 64 * 1024
# The same refusal of the same host is reported once in this time: a node that is set up wrongly dials on.
_REPORT_AGAIN_NS = 10 * SECOND
_REPORTS_MAX = 256


class FrameTooLong(ProtocolError):
    """The peer announced a frame above the limit."""


class PeerFrameReader:
    """Collects bytes and returns whole frames; holds no more than one frame and one read."""

    __slots__ = ("_buffer", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0

    @property
    def held_bytes(self) -> int:
        """What has arrived of frames that are not whole."""
        return len(self._buffer)

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
    """Memory limits and timeouts for one peer, and for all that dial us.

    The links of one host may hold the bytes of one frame of the largest size, those of all hosts of two.
    A node dials two links to another: more than a few of one node are left over from its former lives.
    """

    frame_bytes_max: int = 128 * 1024 * 1024
    send_buffer_bytes_max: int = 8 * 1024 * 1024
    links_max: int = 1024
    host_links_max: int = 256
    host_handshakes_max: int = 32
    node_links_max: int = 8
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

    def write_to(self, connected: socket.socket | TlsSession) -> bool:
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

    def __init__(  # noqa: PLR0913 - what a runtime is made of, by name
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        deliver: Deliver,
        *,
        hello: Hello,
        admit: Admit | None,
        options: PeerOptions,
        tls: PeerTls | None = None,
    ) -> None:
        self._loop = loop
        self.clock = clock
        self.deliver = deliver
        self.hello = hello
        self._admit = admit
        self.options = options
        self.tls = tls
        self.scratch = memoryview(bytearray(_READ_BYTES))
        self.plaintext = memoryview(bytearray(0 if tls is None else _READ_BYTES))
        self.links: dict[object, None] = {}  # in order of age
        self._saturated: set[object] = set()
        self._held: dict[SocketLink, int] = {}
        self._reported: dict[tuple[str, str, str], Instant] = {}

    def admit(self, hello: Hello) -> HelloRefusal | None:
        """Check a peer's hello: by the configured rule, or else by its cluster."""
        return (self._admit or same_cluster(self.hello.identity))(hello)

    def join_cluster(self, cluster_id: UUID) -> None:
        self.hello = replace(self.hello, identity=self.hello.identity._replace(cluster_id=cluster_id))

    def report(self, event: str, host: str, reason: str, **fields: object) -> None:
        """Write a warning about a link, unless the same was just written."""
        now, key = self.clock.now(), (event, host, reason)
        last = self._reported.pop(key, None)
        is_news = last is None or now - last >= _REPORT_AGAIN_NS
        self._reported[key] = now if is_news or last is None else last
        if len(self._reported) > _REPORTS_MAX:
            del self._reported[next(iter(self._reported))]
        if is_news:
            events.warning(event, host=host, reason=reason, **fields)

    def inbound(self, host: str) -> list["SocketLink"]:
        """The links that a host has dialled, the oldest first."""
        return [link for link in self.links if isinstance(link, SocketLink) and link.host == host]

    def note_held(self, link: "SocketLink", held_bytes: int) -> None:
        """Count what unfinished frames of accepted links hold, and end the link that holds too much.

        The host that holds most pays: the links of others stay, and go on.
        """
        if not held_bytes:
            self._held.pop(link, None)
            return
        self._held[link] = held_bytes
        one_frame = self.options.frame_bytes_max + _READ_BYTES
        by_host: dict[str, int] = {}
        for each, held in self._held.items():
            by_host[each.host] = by_host.get(each.host, 0) + held
        host = max(by_host, key=by_host.__getitem__)
        if by_host[host] > one_frame or sum(by_host.values()) > 2 * one_frame:
            largest = max((each for each in self._held if each.host == host), key=self._held.__getitem__)
            self.report("peer.link_dropped", host, "unfinished frames of this host take too much memory")
            largest.end(CloseReason.MISBEHAVED)

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
        self._held.pop(link, None)  # type: ignore[call-overload]  # a listener is no link, and holds nothing
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

    def __init__(
        self,
        wiring: LinkPoller,
        handler: LinkHandler,
        state: LinkState,
        *,
        host: str = "",
        on_plain_peer: Callback | None = None,
    ) -> None:
        """`host` is where an accepted link came from; `on_plain_peer`: whom we dialled has no TLS."""
        self._wiring = wiring
        self._handler = handler
        self._state = state
        self._on_plain_peer = on_plain_peer
        self._peer_name = host
        self.host = host
        self.node_id: NodeId | None = None
        self._tls: TlsSession | None = None
        # The node that the peer's certificate is of.
        self._certified: NodeId | None = None
        self._is_heard = False
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

    @property
    def is_receiving(self) -> bool:
        return self._reader.held_bytes > 0

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

    @property
    def is_waiting(self) -> bool:
        """Whether it was accepted, and is not open yet."""
        return self._state is LinkState.WAITING

    def hold(self, connection: socket.socket) -> None:
        """Own this socket, connected or not: it is closed with the link."""
        assert self._socket is None
        self._socket = connection

    def greet(self, address: str = "", *, in_plain: bool = False) -> None:
        """The socket is connected: the dialling side sends its hello, the other side waits for it."""
        assert self._socket is not None
        self._heard_at = self._wiring.clock.now()
        self._wiring.start_reading(self._socket, self._readable)
        if self._state is not LinkState.CALLING:
            return
        self._peer_name = address
        tls = self._wiring.tls
        self._state = LinkState.GREETING
        if tls is None or in_plain:
            self._enqueue((write_hello(self._wiring.hello),))
        else:
            self._tls = TlsSession(self._socket, tls.client, is_server=False)
            self._shake_hands(self._tls)

    def end(self, ending: CloseReason) -> None:
        """Close the socket now and notify the handler soon."""
        if self._state is LinkState.CLOSED:
            return
        self._note_plain_peer(ending)
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

    def _note_plain_peer(self, ending: CloseReason) -> None:
        """A node that closes the connection at our first TLS record does not speak it, most likely."""
        if self._tls is None or self._is_heard or ending is not CloseReason.ENDED:
            return
        if self._on_plain_peer is not None:
            self._on_plain_peer()
        else:
            self._wiring.report(
                "peer.link_refused", self._peer_name, "it closed the connection at once: it may have no TLS"
            )

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
        left = _TURN_BYTES_MAX
        while left > 0:
            if self._socket is None or self._state is LinkState.CLOSED or self._paused:
                return
            count = self._read(self._socket)
            if count < _READ_BYTES and (not count or self._reader.held_bytes < _LARGE_FRAME_BYTES):
                return
            left -= count

    def _read(self, connected: socket.socket) -> int:
        """Read once; returns how much there was."""
        scratch = self._wiring.scratch
        try:
            count = connected.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            self._wiring.note_read(self, saturated=False)
            return 0
        except OSError:
            self.end(CloseReason.ENDED)
            return 0
        if count == 0:
            self.end(CloseReason.ENDED)
            return 0
        self._wiring.note_read(self, saturated=count == len(scratch))
        self._heard_at = self._wiring.clock.now()
        self._heard(scratch[:count])
        return count

    def _heard(self, received: memoryview) -> None:
        if not self._is_heard and not self._first_heard(received[0]):
            return
        if self._tls is None:
            self._reader.feed(received)
        elif not self._decrypt(self._tls, received):
            return
        self._hand_over()
        if self.host and self._state is not LinkState.CLOSED:
            self._wiring.note_held(self, self._reader.held_bytes)

    def _first_heard(self, first: int) -> bool:
        """Look at the first byte of a connection: whether TLS is spoken; False if the link has ended."""
        self._is_heard = True
        is_tls, tls = first == HANDSHAKE_BYTE, self._wiring.tls
        if self._state is not LinkState.WAITING:
            return True
        assert self._socket is not None
        if tls is None:
            if is_tls:
                self._refuse("it speaks TLS, and this node does not: see security.peers")
            return not is_tls
        if is_tls:
            self._tls = TlsSession(self._socket, tls.server, is_server=True)
        elif not tls.accepts_plain:
            self._refuse("it does not speak TLS, and this node wants a certificate: see security.peers")
        return is_tls or tls.accepts_plain

    def _refuse(self, reason: str) -> None:
        self._wiring.report("peer.link_refused", self._peer_name, reason)
        self.end(CloseReason.REJECTED)

    def _decrypt(self, tls: TlsSession, ciphertext: memoryview) -> bool:
        """Pass on what was received; False if the link has ended, or the handshake goes on."""
        tls.feed(ciphertext)
        if not tls.is_established and not self._shake_hands(tls):
            return False
        plaintext = self._wiring.plaintext
        try:
            while count := tls.read_into(plaintext):
                self._reader.feed(plaintext[:count])
        except ssl.SSLZeroReturnError:
            self.end(CloseReason.ENDED)
            return False
        except ssl.SSLError as error:
            # The other side says only now, after its handshake, that it does not trust us.
            self._refuse(tls_reason(error))
            return False
        self._flush()
        return True

    def _shake_hands(self, tls: TlsSession) -> bool:
        """Go on with the handshake; True once it is complete and the certificate is that of a node."""
        try:
            is_done = tls.shake_hands()
        except ssl.SSLError as error:
            # `end` sends the alert, which says why.
            self._refuse(tls_reason(error))
            return False
        self._flush()
        if not is_done:
            return False
        assert self._wiring.tls is not None
        node = self._wiring.tls.node_of(tls.certificate or b"")
        if isinstance(node, CertificateRefusal):
            self._enqueue((write_refusal(HelloRefusal.AUTHENTICATION),))
            self._refuse(node.reason)
            return False
        self._certified = node
        if self._state is LinkState.GREETING:
            self._enqueue((write_hello(self._wiring.hello),))
        return True

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
            self._refuse(_REFUSED_US[greeting])
            return
        node = greeting.identity.node_id
        if self._certified is not None and node != self._certified:
            self._enqueue((write_refusal(HelloRefusal.AUTHENTICATION),))
            self._refuse(f"it says that it is node {node}, and its certificate is of node {self._certified}")
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
        self.node_id = peer.node_id
        if self.host:
            self._end_leftovers()
        self._was_announced = True
        self._reader.frame_bytes_max = self._wiring.options.frame_bytes_max
        if self.deadline is not None:
            self.deadline.cancel()
        self._wiring.deliver(self._handler.opened, self, peer)

    def _end_leftovers(self) -> None:
        """End the oldest links of this node from this host, if there are more than any node needs."""
        same = [link for link in self._wiring.inbound(self.host) if link.node_id == self.node_id]
        for link in same[: max(0, len(same) - self._wiring.options.node_links_max)]:
            link.end(CloseReason.OURS)

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
        if self._socket is None or self._state is LinkState.CLOSED or self._is_flushed:
            return
        tls = self._tls
        try:
            if tls is None:
                emptied = self._outbox.write_to(self._socket)
            else:
                emptied = tls.flush() and (
                    # Of frames nothing can be sent before the handshake is complete.
                    not tls.is_established or (self._outbox.write_to(tls) and not tls.unsent_bytes)
                )
        except OSError:
            self._outbox.clear()
            self._wiring.soon(self.end, CloseReason.ENDED)
            return
        self._sent_at = self._wiring.clock.now()
        if not emptied and not self._blocked:
            self._blocked = True
            self._wiring.start_writing(self._socket, self._writable)

    @property
    def _is_flushed(self) -> bool:
        return not self._outbox.size_bytes and (self._tls is None or not self._tls.unsent_bytes)

    def _writable(self) -> None:
        if self._socket is None or self._state is LinkState.CLOSED:
            return
        self._flush()
        if self._blocked and self._is_flushed:
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


_REFUSED_US = {
    HelloRefusal.VERSION: "it refuses this node: its version is too old",
    HelloRefusal.OTHER_CLUSTER: "it refuses this node: it is of another cluster",
    HelloRefusal.AUTHENTICATION: "it refuses this node: its certificate is not one of this node",
    HelloRefusal.TOO_MANY_LINKS: "it refuses this node: it has too many links",
}
