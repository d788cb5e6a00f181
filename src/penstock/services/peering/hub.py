"""Everything between this node and its peers goes through here."""

from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from penstock.core.model import NodeId
from penstock.observability import log as events
from penstock.runtime import Address, Buffer, CloseReason, Link, NodeIdentity, PeerListener, Runtime
from penstock.runtime.peer_handshake import NO_CLUSTER
from penstock.services.peering.channels import LINE_OF, Channel, ChannelHandler, Line, PeerWatcher
from penstock.services.peering.dialling import Dialling
from penstock.services.peering.guests import Guest

# The node that was dialled, where, and who answered.
Stranger: TypeAlias = Callable[[NodeId, Address, NodeIdentity], None]


class PeerHub:
    """The peers of one node; see the package."""

    def __init__(self, runtime: Runtime, me: NodeId, listen: Address | None) -> None:
        self._runtime = runtime
        self._me = me
        self._listen = listen
        self._listener: PeerListener | None = None
        self._handlers: dict[int, ChannelHandler] = {}
        self._watchers: list[tuple[PeerWatcher, Line]] = []
        self._kept: dict[str, Mapping[NodeId, Address]] = {}
        self._addresses: dict[NodeId, Address] = {}
        self._lines: dict[tuple[NodeId, Line], Dialling] = {}
        self._calls: dict[Link, Dialling] = {}
        self._guests: dict[Link, Guest] = {}
        self._strangers: list[Stranger] = []
        self._is_closed = False

    def serve(self, channel: Channel, handler: ChannelHandler) -> None:
        """Hand the frames of a channel to `handler`; before `open`."""
        assert channel not in self._handlers
        self._handlers[channel] = handler

    def watch(self, watcher: PeerWatcher, channel: Channel = Channel.CONTROL) -> None:
        """Tell `watcher` how the links fare that carry `channel`, and where there is room again."""
        self._watchers.append((watcher, LINE_OF[channel]))

    def when_stranger(self, met: Stranger) -> None:
        """Tell `met` whenever another node answers than the one that was dialled."""
        self._strangers.append(met)

    def open(self) -> None:
        """Open our door, if we have an address: a node alone needs none."""
        if self._listen is not None:
            self._listener = self._runtime.transport.listen(self._listen, self)

    @property
    def address(self) -> Address | None:
        """Where we listen."""
        return self._listen if self._listener is None else self._listener.address

    def keep(self, purpose: str, addresses: Mapping[NodeId, Address]) -> None:
        """Have links to these nodes, as far as `purpose` goes; where a node is, the last call decides."""
        self._kept[purpose] = dict(addresses)
        wanted = {node: None for kept in self._kept.values() for node in kept if node != self._me}
        self._addresses.update(addresses)
        self._addresses = {node: self._addresses[node] for node in wanted}
        for dialling in list(self._lines.values()):
            if self._addresses.get(dialling.node) != dialling.address:
                self._leave(dialling)
        for node in self._addresses:
            self._have(node, Line.CONTROL)

    def _have(self, node: NodeId, line: Line) -> Dialling:
        dialling = self._lines.get((node, line))
        if dialling is None:
            dialling = self._lines[node, line] = Dialling(self._runtime, node, line, self)
            dialling.dial(self._addresses[node], self._called)
        return dialling

    def _called(self, dialling: Dialling, link: Link) -> None:
        self._calls[link] = dialling

    def _leave(self, dialling: Dialling) -> None:
        """Nobody wants this node any more, or it has moved."""
        del self._lines[dialling.node, dialling.line]
        dialling.call_off()
        if dialling.link is not None:
            dialling.link.close()

    def _redial(self, dialling: Dialling) -> None:
        if self._lines.get((dialling.node, dialling.line)) is dialling:
            dialling.dial(self._addresses[dialling.node], self._called)

    def send(self, channel: Channel, node: NodeId, *parts: Buffer) -> bool:
        """Offer a frame on the link that we dialled; False: not taken, `drained` tells when it would be."""
        dialling = self._lines.get((node, LINE_OF[channel]))
        if dialling is None:
            if node not in self._addresses:
                return False
            dialling = self._have(node, LINE_OF[channel])
        return dialling.send(channel, parts)

    def identity_of(self, node: NodeId, channel: Channel = Channel.CONTROL) -> NodeIdentity | None:
        """Who answers on the link that carries `channel`; None if there is no such link now."""
        dialling = self._lines.get((node, LINE_OF[channel]))
        return None if dialling is None else dialling.identity

    def hears(self, node: NodeId) -> bool:
        """Whether the node has a link to us: then its process lives, whether we can reach it or not."""
        return any(guest.node_id == node and not guest.is_ours for guest in self._guests.values())

    def join_cluster(self, cluster_id: UUID) -> None:
        """We belong to this cluster: turn others away, also those who came in before we knew."""
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
        self._guests[link] = Guest(link, peer, is_ours=dialling is not None)
        if dialling is None:
            self._came_back(peer.node_id)
        elif peer.node_id != dialling.node:
            events.warning("peer.other_node", address=str(dialling.address), peer=peer.node_id)
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
        """It calls, so it can be called."""
        for line in Line:
            dialling = self._lines.get((node, line))
            if dialling is not None and dialling.is_waiting:
                self._redial(dialling)
            elif dialling is not None and dialling.is_stalled:
                assert dialling.link is not None
                dialling.link.close()

    def _tell_drained(self, dialling: Dialling) -> None:
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
        handler.received(guest.on(frame[0]), memoryview(frame)[1:])

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

    def close(self) -> None:
        """End every link; nobody is told any more."""
        self._is_closed = True
        for dialling in self._lines.values():
            dialling.call_off()
        for link in (*self._calls, *self._guests):
            link.close()
        if self._listener is not None:
            self._listener.close()
