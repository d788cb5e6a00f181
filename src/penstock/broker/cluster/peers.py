"""Links to the other nodes of the cluster, shared by everything that nodes say to each other.

    raft ──────┐                            ┌── control link ──► node 2   votes, entries, commands
    control ───┼─► PeerManager.send(channel)┤
    replication┘         ▲                  └── bulk link ─────► node 2   records; dialled on first use
                         └── received(peer, frame) ◄── inbound links, and replies on links we dialled

Every node has one listener for peers. The first byte of a frame is its channel, and each channel has
one handler. Two links go to each node, so that a megabyte of records never delays a vote; which
frames go on which link is fixed by the channel (`LINE_OF`).

Each side sends its requests on links that it dialled itself, and replies on the link that the
request came by (`Peer.send`). `keep` says which nodes are dialled and where, per purpose; the peer
manager dials the union and redials lost links: at once when the peer's process ended, so that a
refused connection shows that it is gone, and after a growing pause otherwise. An inbound link from a
node that we fail to reach is a sign that it is back: it is dialled at once.

A node that has another id than the one that was dialled is disconnected; and one whose frames nobody who
keeps to the rules would send.

Left out: pausing a link while its receiver is busy; more than
one link per role.
"""

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias
from uuid import UUID

from penstock.core.model import MILLISECOND, Instant, NodeId, ProtocolError
from penstock.observability import log as events
from penstock.runtime import (
    Address,
    Buffer,
    CloseReason,
    Link,
    LinkHandler,
    NodeIdentity,
    PeerListener,
    Runtime,
    Timer,
)
from penstock.runtime.peer_handshake import NO_CLUSTER

REDIAL_MS = 50
REDIAL_MS_MAX = 500
# A link that ends sooner than this is not redialled at once, or it would be redialled in a loop.
LASTING_MS = 200
# An attempt that takes longer than this waits for packets that were lost.
STALLED_MS = 250
# As long as a broker's session: by then the controller has fenced it, or it is only we who cannot reach it.
JUST_ENDED_MS = 2_000
# What decoders and handlers raise when a message holds what nobody sends: numbers that do not fit, names
# of nothing. Failed asserts are not among them: they say that this node itself is wrong.
MALFORMED = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    struct.error,
)
# The node that was dialled, its address, and the identity found there.
OnIdentityMismatch: TypeAlias = Callable[[NodeId, Address, NodeIdentity], None]


class Channel(enum.IntEnum):
    """Which handler a frame is for: its first byte."""

    RAFT = 1
    CONTROL = 2
    REPLICATION = 3


class LinkRole(enum.Enum):
    """One of the two links to a node."""

    CONTROL = "small frames that must not wait"
    BULK = "records"


LINE_OF = {
    Channel.RAFT: LinkRole.CONTROL,
    Channel.CONTROL: LinkRole.CONTROL,
    Channel.REPLICATION: LinkRole.BULK,
}


class Peer(Protocol):
    """The node at the other end of a link, as its handshake named it."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def directory_id(self) -> UUID: ...

    def send(self, *parts: Buffer) -> bool:
        """Reply on the link and the channel that the frame came by; False: not taken."""


class ChannelHandler(Protocol):
    """Gets the frames of a channel."""

    def received(self, peer: Peer, frame: memoryview) -> None:
        """A frame arrived, whichever side dialled; without its channel byte."""


class PeerWatcher(Protocol):
    """Is notified about the links that this node dialled."""

    def reached(self, node: NodeId, identity: NodeIdentity, /) -> None:
        """A link is open: frames to the node are taken."""

    def lost(self, node: NodeId, ending: CloseReason, /) -> None:
        """A link is over, or an attempt to open one has failed; the next attempt follows by itself."""

    def drained(self, node: NodeId, channel: Channel, /) -> None:
        """Frames that were not taken can be sent: there is room again, or the link has opened."""


class BasePeerWatcher:
    """A `PeerWatcher` that does nothing; subclasses override what they need."""

    def reached(self, _node: NodeId, _identity: NodeIdentity, /) -> None:
        """A link is open."""

    def lost(self, _node: NodeId, _ending: CloseReason, /) -> None:
        """A link is over."""

    def drained(self, _node: NodeId, _channel: Channel, /) -> None:
        """There is room again."""


_FIRST_BYTE = {channel: bytes((channel,)) for channel in Channel}


class PeerConnector:
    """Keeps one link to one node."""

    def __init__(self, runtime: Runtime, node: NodeId, line: LinkRole, handler: LinkHandler) -> None:
        self._runtime = runtime
        self._handler = handler
        self._timer: Timer | None = None
        self._since = Instant(0)
        self._failures = 0
        self._turned_away: dict[Channel, None] = {}
        self.node = node
        self.line = line
        self.address: Address | None = None
        self.link: Link | None = None
        self.identity: NodeIdentity | None = None

    def dial(self, address: Address, took: Callable[["PeerConnector", Link], None]) -> None:
        """Start an attempt; `took` is called with its link."""
        assert self.link is None
        self.call_off()
        self.address = address
        self._since = self._runtime.clock.now()
        self.link = self._runtime.transport.connect(address, self._handler)
        took(self, self.link)

    def call_off(self) -> None:
        """No further attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, channel: Channel, parts: tuple[Buffer, ...]) -> bool:
        link = self.link
        if self.identity is not None and link is not None and link.send(_FIRST_BYTE[channel], *parts):
            return True
        self._turned_away[channel] = None
        return False

    def opened(self, identity: NodeIdentity) -> None:
        self.identity = identity
        self._since = self._runtime.clock.now()

    def take_turned_away(self) -> tuple[Channel, ...]:
        """Return and clear the channels on which a frame was not taken."""
        channels, self._turned_away = tuple(self._turned_away), {}
        return channels

    def closed(self, ending: CloseReason) -> tuple[bool, bool]:
        """The link has ended; returns whether it was open, and whether to dial again at once."""
        lasted_ns = self._runtime.clock.now() - self._since
        was_open = self.identity is not None
        self.link = self.identity = None
        if was_open:
            self._failures = 0
        return was_open, was_open and ending is CloseReason.ENDED and lasted_ns >= LASTING_MS * MILLISECOND

    def dial_later(self, redial: Callable[["PeerConnector"], None]) -> None:
        """Dial again after a pause, a longer one each time."""
        pause_ms = min(REDIAL_MS << min(self._failures, 8), REDIAL_MS_MAX)
        self._failures += 1
        # Jitter, so that two nodes that start together do not dial each other in step for ever.
        jitter_ms = pause_ms * self._runtime.entropy.bytes(1)[0] // 512
        deadline = Instant(self._runtime.clock.now() + (pause_ms + jitter_ms) * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, lambda: redial(self))

    @property
    def is_waiting(self) -> bool:
        """Whether it is pausing before the next attempt."""
        return self._timer is not None

    @property
    def is_stalled(self) -> bool:
        """Whether an attempt has taken so long that a new one would be quicker."""
        stalled_ns = self._runtime.clock.now() - self._since
        return self.link is not None and self.identity is None and stalled_ns > STALLED_MS * MILLISECOND


class PeerChannel:
    """A `Peer`: one channel of an open link."""

    __slots__ = ("_first_byte", "_link", "directory_id", "node_id")

    def __init__(self, link: Link, identity: NodeIdentity, channel: int) -> None:
        self._link = link
        self._first_byte = bytes((channel,))
        self.node_id: NodeId = identity.node_id
        self.directory_id: UUID = identity.directory_id

    def send(self, *parts: Buffer) -> bool:
        return self._link.send(self._first_byte, *parts)


class InboundLink:
    """An open link and its channels. The same link always has the same `Peer` for a channel."""

    __slots__ = ("_link", "_speakers", "identity", "is_ours")

    def __init__(self, link: Link, identity: NodeIdentity, *, is_ours: bool) -> None:
        self._link = link
        self._speakers: dict[int, PeerChannel] = {}
        self.identity = identity
        self.is_ours = is_ours

    @property
    def node_id(self) -> NodeId:
        return self.identity.node_id

    def on(self, channel: int) -> PeerChannel:
        speaker = self._speakers.get(channel)
        if speaker is None:
            speaker = self._speakers[channel] = PeerChannel(self._link, self.identity, channel)
        return speaker


class PeerManager:
    """The links of one node to its peers; see the module."""

    def __init__(self, runtime: Runtime, me: NodeId, listen: Address | None) -> None:
        self._runtime = runtime
        self._me = me
        self._listen = listen
        self._listener: PeerListener | None = None
        self._handlers: dict[int, ChannelHandler] = {}
        self._watchers: list[tuple[PeerWatcher, LinkRole]] = []
        self._kept: dict[str, Mapping[NodeId, Address]] = {}
        self._addresses: dict[NodeId, Address] = {}
        self._lines: dict[tuple[NodeId, LinkRole], PeerConnector] = {}
        self._calls: dict[Link, PeerConnector] = {}
        self._guests: dict[Link, InboundLink] = {}
        self._strangers: list[OnIdentityMismatch] = []
        # When a node's process seems to have ended: its links did, or its port began to refuse connections.
        self._ended_at: dict[NodeId, Instant] = {}
        self._is_closed = False

    def serve(self, channel: Channel, handler: ChannelHandler) -> None:
        """Hand the frames of a channel to `handler`; before `open`."""
        assert channel not in self._handlers
        self._handlers[channel] = handler

    def watch(self, watcher: PeerWatcher, channel: Channel = Channel.CONTROL) -> None:
        """Notify `watcher` about the links that carry `channel`, and when there is room again."""
        self._watchers.append((watcher, LINE_OF[channel]))

    def on_identity_mismatch(self, met: OnIdentityMismatch) -> None:
        """Call `met` whenever another node is found than the one that was dialled."""
        self._strangers.append(met)

    def open(self) -> None:
        """Listen for peers, if there is an address: a single node needs none."""
        if self._listen is not None:
            self._listener = self._runtime.transport.listen(self._listen, self)

    @property
    def address(self) -> Address | None:
        """Where we listen."""
        return self._listen if self._listener is None else self._listener.address

    def keep(self, purpose: str, addresses: Mapping[NodeId, Address]) -> None:
        """Keep links to these nodes for `purpose`; the last call sets a node's address."""
        self._kept[purpose] = dict(addresses)
        wanted = {node: None for kept in self._kept.values() for node in kept if node != self._me}
        self._addresses.update(addresses)
        self._addresses = {node: self._addresses[node] for node in wanted}
        self._ended_at = {node: ended for node, ended in self._ended_at.items() if node in wanted}
        for dialling in list(self._lines.values()):
            if self._addresses.get(dialling.node) != dialling.address:
                self._leave(dialling)
        for node in self._addresses:
            self._have(node, LinkRole.CONTROL)

    def _have(self, node: NodeId, line: LinkRole) -> PeerConnector:
        dialling = self._lines.get((node, line))
        if dialling is None:
            dialling = self._lines[node, line] = PeerConnector(self._runtime, node, line, self)
            dialling.dial(self._addresses[node], self._called)
        return dialling

    def _called(self, dialling: PeerConnector, link: Link) -> None:
        self._calls[link] = dialling

    def _leave(self, dialling: PeerConnector) -> None:
        """Drop a link that is not needed any more, or whose node has moved."""
        del self._lines[dialling.node, dialling.line]
        dialling.call_off()
        if dialling.link is not None:
            dialling.link.close()

    def _redial(self, dialling: PeerConnector) -> None:
        if self._lines.get((dialling.node, dialling.line)) is dialling:
            dialling.dial(self._addresses[dialling.node], self._called)

    def send(self, channel: Channel, node: NodeId, *parts: Buffer) -> bool:
        """Offer a frame on the link that we dialled; False: not taken, retry when `drained` is called."""
        dialling = self._lines.get((node, LINE_OF[channel]))
        if dialling is None:
            if node not in self._addresses:
                return False
            dialling = self._have(node, LINE_OF[channel])
        return dialling.send(channel, parts)

    def identity_of(self, node: NodeId, channel: Channel = Channel.CONTROL) -> NodeIdentity | None:
        """The identity behind the link that carries `channel`; None if there is no such link now."""
        dialling = self._lines.get((node, LINE_OF[channel]))
        return None if dialling is None else dialling.identity

    def is_receiving(self, node: NodeId, channel: Channel) -> bool:
        """Whether a part of a frame of the node is here, on the link that we dialled for this channel."""
        dialling = self._lines.get((node, LINE_OF[channel]))
        return dialling is not None and dialling.link is not None and dialling.link.is_receiving

    def hears(self, node: NodeId) -> bool:
        """Whether the node has a link to us: then its process is alive, even if we cannot reach it."""
        return any(guest.node_id == node and not guest.is_ours for guest in self._guests.values())

    def just_ended(self) -> tuple[NodeId, ...]:
        """The nodes whose process ended a moment ago, as far as can be seen from here.

        All their links have ended, and their port refuses connections, or has not replied yet.
        """
        if not self._ended_at:
            return ()
        since = self._runtime.clock.now() - JUST_ENDED_MS * MILLISECOND
        linked = {guest.node_id: None for guest in self._guests.values()}
        return tuple(node for node, ended in self._ended_at.items() if ended > since and node not in linked)

    def join_cluster(self, cluster_id: UUID) -> None:
        """Accept only nodes of this cluster from now on; close links to others."""
        self._runtime.transport.join_cluster(cluster_id)
        at_home = (NO_CLUSTER, cluster_id)
        for link, guest in list(self._guests.items()):
            if guest.identity.cluster_id not in at_home:
                link.close()
        for dialling in self._lines.values():
            identity, called = dialling.identity, dialling.link
            if called is not None and identity is not None and identity.cluster_id not in at_home:
                called.close()

    def opened(self, link: Link, peer: NodeIdentity) -> None:
        if self._is_closed:
            return
        dialling = self._calls.get(link)
        self._guests[link] = InboundLink(link, peer, is_ours=dialling is not None)
        self._ended_at.pop(peer.node_id, None)
        if dialling is None:
            self._came_back(peer.node_id)
        elif peer.node_id != dialling.node:
            events.warning("peer.identity_mismatch", address=str(dialling.address), peer=peer.node_id)
            assert dialling.address is not None
            for met in self._strangers:
                met(dialling.node, dialling.address, peer)
            link.close()
        else:
            dialling.opened(peer)
            for watcher, line in self._watchers:
                if line is dialling.line:
                    watcher.reached(dialling.node, peer)
            self._tell_drained(dialling)

    def _came_back(self, node: NodeId) -> None:
        """Dial a node at once that has dialled us."""
        for line in LinkRole:
            dialling = self._lines.get((node, line))
            if dialling is not None and dialling.is_waiting:
                self._redial(dialling)
            elif dialling is not None and dialling.is_stalled:
                assert dialling.link is not None
                dialling.link.close()

    def _tell_drained(self, dialling: PeerConnector) -> None:
        for channel in dialling.take_turned_away():
            for watcher, _ in self._watchers:
                watcher.drained(dialling.node, channel)

    def received(self, link: Link, frame: bytes) -> None:
        guest = self._guests.get(link)
        if guest is None or self._is_closed:
            return
        handler = self._handlers.get(frame[0])
        if handler is None:
            events.debug("peer.unknown_channel", peer=guest.node_id, channel=frame[0])
            return
        try:
            handler.received(guest.on(frame[0]), memoryview(frame)[1:])
        except ProtocolError as wrong:
            self._end_link(link, guest, frame[0], str(wrong))
        except MALFORMED as error:
            # The machine of a quorum must not go on after half a step; others decide before they change.
            if frame[0] == Channel.RAFT:
                raise
            self._end_link(link, guest, frame[0], f"{type(error).__name__}: {error}")

    def _end_link(self, link: Link, guest: InboundLink, channel: int, reason: str) -> None:
        events.warning("peer.misbehaved", peer=guest.node_id, channel=Channel(channel).name, reason=reason)
        link.close()

    def drained(self, link: Link) -> None:
        dialling = self._calls.get(link)
        if dialling is not None and not self._is_closed:
            self._tell_drained(dialling)

    def closed(self, link: Link, ending: CloseReason) -> None:
        self._guests.pop(link, None)
        dialling = self._calls.pop(link, None)
        if dialling is None or self._is_closed or dialling.link is not link:
            return
        events.debug("peer.link_closed", peer=dialling.node, ending=ending.name)
        was_open, at_once = dialling.closed(ending)
        self._note_end(dialling.node, ending)
        is_wanted = self._lines.get((dialling.node, dialling.line)) is dialling
        if is_wanted and at_once:
            self._redial(dialling)
        elif is_wanted:
            dialling.dial_later(self._redial)
        elif not was_open:
            return
        for watcher, line in self._watchers:
            if line is dialling.line:
                watcher.lost(dialling.node, ending)

    def _note_end(self, node: NodeId, ending: CloseReason) -> None:
        if ending in (CloseReason.ENDED, CloseReason.REFUSED):
            self._ended_at.setdefault(node, self._runtime.clock.now())
        else:
            self._ended_at.pop(node, None)

    def close(self) -> None:
        """Close every link, without notifying watchers."""
        self._is_closed = True
        for dialling in self._lines.values():
            dialling.call_off()
        for link in (*self._calls, *self._guests):
            link.close()
        if self._listener is not None:
            self._listener.close()
