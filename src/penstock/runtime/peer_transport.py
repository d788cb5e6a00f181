"""Frames between nodes over TCP.

Raw non-blocking sockets on the loop rather than its stream or protocol classes: we
decide how much is read per turn, know when a socket has been read empty (timers wait for that),
and large frames go to the kernel without a copy. A peer that breaks the framing, floods, sends
nothing or never reads only harms its own link: reads are bounded per turn, frames by a limit,
unsent bytes by a buffer that takes no more frames, silence by a timeout. Before its hello is
admitted, a peer gets two kilobytes and two seconds. How many links one host may have, and how much memory
unfinished frames of all may take, is bounded: see `PeerOptions`.

Left out: authentication exchanges of more than one message (the hello has one
field each way, and TLS comes before it), and file ranges sent with sendfile; peers get bytes.
"""

import errno
import socket
from collections.abc import Callable
from functools import partial
from uuid import UUID

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime.peer_link import LinkPoller, LinkState, SocketLink
from penstock.runtime.port import (
    Address,
    AddressUnavailable,
    CloseReason,
    Executor,
    ExecutorKind,
    LinkHandler,
    Timer,
    Timers,
)

_ACCEPTS_PER_TURN = 64
_BACKLOG = 512
_ACCEPT_PAUSE_NS = 100 * MILLISECOND


class SocketTransport:
    """The transport of one node; see `penstock.runtime.port.Transport`."""

    def __init__(self, wiring: LinkPoller, timers: Timers, spawn: Executor) -> None:
        self._wiring = wiring
        self._timers = timers
        self._spawn = spawn
        self._doors: list[SocketPeerListener] = []
        # Where the last attempt met no TLS: the next one goes without, if that is allowed.
        self._without_tls: dict[Address, None] = {}
        self._sweep: Timer = timers.at(self._next_sweep(), self._watch_silence)

    def listen(self, address: Address, handler: LinkHandler) -> "SocketPeerListener":
        try:
            listening = socket.create_server(
                address, family=_family_of(address.host) or socket.AF_INET, backlog=_BACKLOG
            )
        except OSError as failure:
            raise AddressUnavailable(
                f"cannot listen on {address}: {failure.strerror or failure}"
            ) from failure
        door = SocketPeerListener(
            self, listening, lambda connected, host: self._welcome(connected, host, handler)
        )
        self._doors.append(door)
        return door

    def connect(self, address: Address, handler: LinkHandler) -> SocketLink:
        tls = self._wiring.tls
        on_plain_peer = None if tls is None or not tls.accepts_plain else partial(self._note_plain, address)
        link = SocketLink(self._wiring, handler, LinkState.CALLING, on_plain_peer=on_plain_peer)
        self._wiring.links[link] = None
        options = self._wiring.options
        self._give(link, options.connect_timeout_ms + options.handshake_timeout_ms)
        if _family_of(address.host) is None:
            self._resolve(link, address)
        else:
            self._wiring.soon(self._call, link, address, address)
        return link

    def _note_plain(self, address: Address) -> None:
        self._without_tls[address] = None

    def join_cluster(self, cluster_id: UUID) -> None:
        self._wiring.join_cluster(cluster_id)

    def close(self) -> None:
        """Close every link and listener, without notifying handlers: the node has ended."""
        self._sweep.cancel()
        for door in self._doors:
            door.close()
        for link in list(self._wiring.links):
            assert isinstance(link, SocketLink)
            link.end(CloseReason.OURS)

    def _give(self, link: SocketLink, timeout_ms: int) -> None:
        """Close the link unless it opens within the timeout."""

        def too_late() -> None:
            link.end(CloseReason.UNREACHABLE)

        deadline = Instant(self._wiring.clock.now() + timeout_ms * MILLISECOND)
        link.deadline = self._timers.at(deadline, too_late)

    def _resolve(self, link: SocketLink, address: Address) -> None:
        """Resolve a host name. That can block for seconds, so it is done off the loop."""

        def resolved(found: Address) -> None:
            self._call(link, found, address)

        def unknown(_why: Exception) -> None:
            link.end(CloseReason.UNREACHABLE)

        self._spawn.spawn(lambda: _look_up(address), resolved, unknown, ExecutorKind.DISK)

    def _call(self, link: SocketLink, address: Address, name: Address) -> None:
        if link.is_closed:
            return
        calling = socket.socket(_family_of(address.host) or socket.AF_INET, socket.SOCK_STREAM)
        calling.setblocking(False)
        calling.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.hold(calling)
        try:
            code = calling.connect_ex(address)
        except OverflowError:
            code = errno.EADDRNOTAVAIL  # an impossible port number: addresses come from other nodes
        if code in (0, errno.EINPROGRESS):
            self._wiring.start_writing(calling, lambda: self._called(link, calling, name))
        else:
            link.end(_ending_of(code))

    def _called(self, link: SocketLink, calling: socket.socket, name: Address) -> None:
        if link.is_closed:
            return
        self._wiring.stop_writing(calling)
        code = calling.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            link.end(_ending_of(code))
        else:
            # One attempt: after it TLS is tried again, because nodes are restarted with it one by one.
            link.greet(str(name), in_plain=name in self._without_tls)
            self._without_tls.pop(name, None)

    def _welcome(self, connected: socket.socket, host: str, handler: LinkHandler) -> None:
        """Accept a link: until its hello it gets little memory and little time."""
        if not self._make_room(host):
            connected.close()
            return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = SocketLink(self._wiring, handler, LinkState.WAITING, host=host)
        self._wiring.links[link] = None
        self._give(link, self._wiring.options.handshake_timeout_ms)
        link.hold(connected)
        link.greet()

    def _make_room(self, host: str) -> bool:
        """Whether one more link of this host is taken. Handshakes that hang make room for new ones."""
        options, links = self._wiring.options, self._wiring.inbound(host)
        waiting = [link for link in links if link.is_waiting]
        if len(waiting) >= options.host_handshakes_max:
            waiting[0].end(CloseReason.UNREACHABLE)
        elif len(links) >= options.host_links_max or len(self._wiring.links) >= options.links_max:
            self._wiring.report("peer.link_dropped", host, "there are too many links already")
            return False
        return True

    def _next_sweep(self) -> Instant:
        return Instant(self._wiring.clock.now() + self._wiring.options.idle_timeout_ms * MILLISECOND // 4)

    def _watch_silence(self) -> None:
        if self._wiring.tls is not None:
            self._wiring.tls.check()
        now = self._wiring.clock.now()
        for link in list(self._wiring.links):
            assert isinstance(link, SocketLink)
            link.keep_alive(now, self._wiring.options.idle_timeout_ms * MILLISECOND)
        self._sweep = self._timers.at(self._next_sweep(), self._watch_silence)

    def watch_door(self, listening: socket.socket, accept: Callable[[], None]) -> None:
        self._wiring.start_reading(listening, lambda: self._wiring.deliver(accept))

    def leave_door(self, listening: socket.socket) -> None:
        self._wiring.forget(listening, listening)

    def later(self, delay_ns: int, fire: Callable[[], None]) -> None:
        self._timers.at(Instant(self._wiring.clock.now() + delay_ns), fire)


class SocketPeerListener:
    """A listening socket."""

    def __init__(
        self,
        transport: SocketTransport,
        listening: socket.socket,
        welcome: Callable[[socket.socket, str], None],
    ) -> None:
        self._transport = transport
        self._listening = listening
        self._welcome = welcome
        self._closed = False
        listening.setblocking(False)
        host, port = listening.getsockname()[:2]
        self._address = Address(host, port)
        self._open()

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.leave_door(self._listening)
            self._listening.close()

    def _open(self) -> None:
        if not self._closed:
            self._transport.watch_door(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._closed:
                return
            try:
                connected, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # The connection stays in the backlog and the socket readable: without a
                    # pause the loop would spin on it.
                    self._transport.leave_door(self._listening)
                    self._transport.later(_ACCEPT_PAUSE_NS, self._open)
                    return
                continue  # that connection has ended already
            self._welcome(connected, address[0])


def _family_of(host: str) -> socket.AddressFamily | None:
    """The address family of a numeric `host`; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return None


def _look_up(address: Address) -> Address:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    host, port = found[0][4][:2]
    return Address(str(host), int(port))


def _ending_of(code: int) -> CloseReason:
    return CloseReason.REFUSED if code in (errno.ECONNREFUSED, errno.ECONNRESET) else CloseReason.UNREACHABLE
