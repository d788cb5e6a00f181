"""Where the other nodes are, and to whom links are kept."""

from collections.abc import Sequence
from uuid import UUID

from penstock.core.metadata import MetadataImage
from penstock.core.model import BrokerEpoch, NodeId
from penstock.core.raft import NOBODY, Configuration, Member
from penstock.runtime import Address
from penstock.services.cluster.control.messages import Voter
from penstock.services.peering import PeerHub

# The name under which a broker registers where its peers find it.
PEER_LISTENER = "PEER"
_PURPOSE = "cluster"


class AddressBook:
    """What the start said, what brokers registered, and what nodes say of themselves; the latest counts.

    A voter keeps links to everybody, for it may have to lead; whoever has no vote to the voters.
    """

    def __init__(self, me: Member, hub: PeerHub, voters: Sequence[Voter]) -> None:
        self._me = me
        self._hub = hub
        self._given = {voter.node_id: voter.address for voter in voters}
        self._registered: dict[NodeId, tuple[BrokerEpoch, Address]] = {}
        self._told: dict[NodeId, Address] = {}
        self._configuration = NOBODY

    def open(self) -> None:
        self._keep()

    def address_of(self, node: NodeId) -> Address | None:
        registered = self._registered.get(node)
        return self._told.get(node) or (registered[1] if registered else self._given.get(node))

    def introduced(self, node: NodeId, directory_id: UUID, address: Address | None) -> None:
        """A node says where it listens. A stranger does not take the place of one that is there."""
        known = self._hub.identity_of(node)
        is_taken = known is not None and known.directory_id != directory_id
        if address is None or is_taken or address == self.address_of(node):
            return
        if self._configuration == NOBODY and node in self._given:
            return  # what operators say of founders is not for others to change
        self._told[node] = address
        self._keep()

    def heard_of(self, node: NodeId, address: Address) -> None:
        """Somebody says where another listens; whoever knows more is right."""
        if self.address_of(node) is None:
            self._told[node] = address
            self._keep()

    def reachable(self) -> list[NodeId]:
        """The nodes that we have links to, and should have."""
        return [node for node in self._wanted() if self._hub.identity_of(node) is not None]

    def members_changed(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._keep()

    def follow(self, image: MetadataImage) -> None:
        """Brokers have registered, perhaps elsewhere than before."""
        registered: dict[NodeId, tuple[BrokerEpoch, Address]] = {}
        for broker in image.each_broker():
            listener = broker.listener(PEER_LISTENER)
            if listener is not None:
                registered[broker.node_id] = (broker.epoch, Address(listener.host, listener.port))
        if registered == self._registered:
            return
        for node, (epoch, _) in registered.items():
            if self._registered.get(node, (None,))[0] != epoch:
                self._told.pop(node, None)
        self._registered = registered
        self._keep()

    def _wanted(self) -> list[NodeId]:
        configuration = self._configuration
        if configuration == NOBODY:
            wanted = [*self._given, *self._told]
        elif self._me in configuration.voters:
            wanted = [*(member.node_id for member in configuration.members), *self._registered]
        else:
            wanted = [member.node_id for member in configuration.voters]
        return [node for node in dict.fromkeys(wanted) if node != self._me.node_id]

    def _keep(self) -> None:
        found = {node: self.address_of(node) for node in self._wanted()}
        self._hub.keep(_PURPOSE, {node: address for node, address in found.items() if address is not None})
