"""What members of the quorum say to each other, on the channel that is theirs."""

from collections.abc import Callable
from typing import TypeAlias

from penstock.core.model import NodeId, ProtocolError
from penstock.core.raft import Member
from penstock.core.raft.messages import RaftMessage
from penstock.observability import log as events
from penstock.runtime import CloseReason
from penstock.services.cluster.raft.codec import decode_message, encode_message
from penstock.services.peering import Channel, LaxWatcher, Peer, PeerHub

Arrival: TypeAlias = Callable[[Member, RaftMessage], None]


class MemberLinks(LaxWatcher):
    """Sends messages to members, and hears whoever sends to us.

    A message goes out only if the node at the other end has the directory that it is meant
    for; what cannot be sent is lost, as on any network.
    """

    def __init__(self, hub: PeerHub, arrived: Arrival, gone: Callable[[NodeId], None]) -> None:
        self._hub = hub
        self._arrived = arrived
        self._gone = gone
        hub.serve(Channel.RAFT, self)
        hub.watch(self)

    def send(self, to: Member, message: RaftMessage) -> None:
        identity = self._hub.identity_of(to.node_id)
        if identity is not None and identity.directory_id == to.directory_id:
            self._hub.send(Channel.RAFT, to.node_id, encode_message(message))

    def received(self, peer: Peer, frame: memoryview) -> None:
        try:
            message = decode_message(frame)
        except ProtocolError as wrong:
            events.warning("quorum.bad_message", peer=peer.node_id, reason=str(wrong))
            return
        self._arrived(Member(peer.node_id, peer.directory_id), message)

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        # A machine that refuses runs no such process, unless the process itself still talks to us.
        if ending is CloseReason.REFUSED and not self._hub.hears(node):
            self._gone(node)
