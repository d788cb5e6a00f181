"""Links between the members of the quorum."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from penstock.core.model import MILLISECOND, Instant, NodeId, ProtocolError
from penstock.core.raft import Member
from penstock.core.raft.messages import Message
from penstock.observability import log as events
from penstock.runtime import Address, Ending, Identity, Link, Listener, Runtime, Timer
from penstock.services.cluster.raft.codec import decode_message, encode_message

REDIAL_MS = 50
Arrival: TypeAlias = Callable[[Member, Message], None]


class MemberLinks:
    """Dials every member, and hears whoever dials us.

    Each side sends on the link it dialled. A message goes out only if the node at the other
    end has the directory that it is meant for; what cannot be sent is lost, as on any network.
    """

    def __init__(
        self, runtime: Runtime, me: Member, addresses: Mapping[NodeId, Address], arrived: Arrival
    ) -> None:
        self._runtime = runtime
        self._me = me
        self._addresses = addresses
        self._arrived = arrived
        self._wanted: tuple[NodeId, ...] = ()
        self._dialled: dict[NodeId, Link] = {}
        self._timers: dict[NodeId, Timer] = {}
        self._peers: dict[Link, Member] = {}
        self._listener: Listener | None = None

    def listen(self) -> None:
        """Open our door, if we have an address: a quorum of one needs none."""
        address = self._addresses.get(self._me.node_id)
        if address is not None:
            self._listener = self._runtime.transport.listen(address, self)

    def keep(self, members: tuple[Member, ...]) -> None:
        """Have a link to each of these nodes from now on, and dial no others."""
        self._wanted = tuple(
            dict.fromkeys(
                member.node_id
                for member in members
                if member.node_id != self._me.node_id and member.node_id in self._addresses
            )
        )
        for node in self._wanted:
            if node not in self._dialled and node not in self._timers:
                self._dial(node)

    def _dial(self, node: NodeId) -> None:
        self._timers.pop(node, None)
        if node in self._wanted:
            self._dialled[node] = self._runtime.transport.connect(self._addresses[node], self)

    def send(self, to: Member, message: Message) -> None:
        link = self._dialled.get(to.node_id)
        if link is not None and self._peers.get(link) == to:
            link.send(encode_message(message))

    def opened(self, link: Link, peer: Identity) -> None:
        self._peers[link] = Member(peer.node_id, peer.directory_id)

    def received(self, link: Link, frame: bytes) -> None:
        try:
            message = decode_message(frame)
        except ProtocolError as wrong:
            events.warning("quorum.bad_message", node=self._peers[link].node_id, reason=str(wrong))
            link.close()
            return
        self._arrived(self._peers[link], message)

    def drained(self, link: Link) -> None:
        """What was turned away is lost; the machine sends again."""

    def closed(self, link: Link, ending: Ending) -> None:
        events.debug("quorum.link_closed", ending=ending.name)
        self._peers.pop(link, None)
        node = next((node for node, dialled in self._dialled.items() if dialled is link), None)
        if node is None:
            return
        del self._dialled[node]
        if node in self._wanted:
            # Jitter, so that two nodes that start together do not call each other in step for ever.
            wait_ms = REDIAL_MS + self._runtime.entropy.bytes(1)[0] // 8
            deadline = Instant(self._runtime.clock.now() + wait_ms * MILLISECOND)
            self._timers[node] = self._runtime.timers.at(deadline, lambda: self._dial(node))

    def close(self) -> None:
        self._wanted = ()
        for timer in self._timers.values():
            timer.cancel()
        for link in (*self._dialled.values(), *self._peers):
            link.close()
        if self._listener is not None:
            self._listener.close()
