"""The addresses of the other nodes, and which links are kept."""

from collections.abc import Callable, Sequence
from uuid import UUID

from penstock.broker.cluster.peers import BasePeerWatcher, Peer, PeerManager
from penstock.broker.cluster.rpc import Introduction, IntroductionReply, PeerRpc, Respond, RpcReply, Voter
from penstock.core.metadata import (
    EMPTY_IMAGE,
    PEER_LISTENER,
    FeatureRange,
    MetadataImage,
    UpdateFeatures,
    supports,
)
from penstock.core.model import ApiError, BrokerEpoch, ErrorKind, NodeId
from penstock.core.raft import EMPTY_CONFIGURATION, Configuration, Member
from penstock.runtime import Address, CloseReason, NodeIdentity

# The name under which a broker registers where its peers find it.
_PURPOSE = "cluster"
# After this many failures in a row at one address, the other known address is tried.
PATIENCE = 3
ANSWER_MS = 1_000


class AddressBook(BasePeerWatcher):
    """Addresses from the configuration, from broker registrations and from hellos; the latest counts.

    Which of the first two is later cannot be known: nodes may have moved after their last stop, or
    since our configuration was written. If nobody listens where a broker registered, the configured
    address is tried, and the other way round.

    A voter keeps links to every node, since it may have to lead, and to the configured voters, which
    may belong to another cluster; a learner keeps links to the voters.
    """

    def __init__(self, me: Member, hub: PeerManager, voters: Sequence[Voter]) -> None:
        self._me = me
        self._peers = hub
        self._given = {voter.node_id: voter.address for voter in voters}
        self._registered: dict[NodeId, tuple[BrokerEpoch, Address]] = {}
        self._brokers = EMPTY_IMAGE.brokers
        self._told: dict[NodeId, Address] = {}
        self._failures: dict[NodeId, int] = {}
        self._configuration = EMPTY_CONFIGURATION
        hub.watch(self)

    def open(self) -> None:
        self._keep()

    def address_of(self, node: NodeId) -> Address | None:
        told = self._told.get(node)
        if told is not None:
            return told
        registered, given = self._registered.get(node), self._given.get(node)
        if registered is None or given is None:
            return given if registered is None else registered[1]
        return registered[1] if self._failures.get(node, 0) // PATIENCE % 2 == 0 else given

    def reached(self, node: NodeId, _identity: NodeIdentity) -> None:
        """Remember the address that worked: if the link breaks, it is tried first."""
        self._failures[node] = self._failures.get(node, 0) // PATIENCE * PATIENCE

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        if ending in (CloseReason.REFUSED, CloseReason.UNREACHABLE):
            before = self.address_of(node)
            self._failures[node] = self._failures.get(node, 0) + 1
            if self.address_of(node) != before:
                self._keep()

    def on_introduction(self, node: NodeId, directory_id: UUID, address: Address | None) -> None:
        """A node says where it listens. A stranger does not replace a node that is connected."""
        known = self._peers.identity_of(node)
        is_taken = known is not None and known.directory_id != directory_id
        if address is None or is_taken or address == self.address_of(node):
            return
        if self._configuration == EMPTY_CONFIGURATION and node in self._given:
            return  # configured addresses of voters are not changed by others
        self._told[node] = address
        self._keep()

    def learn(self, node: NodeId, address: Address) -> None:
        """Another node says where `node` listens; anything we know better stays."""
        if self.address_of(node) is None:
            self._told[node] = address
            self._keep()

    def reachable(self) -> list[NodeId]:
        """The nodes that we keep links to, and have one."""
        return [node for node in self._wanted() if self._peers.identity_of(node) is not None]

    def members_changed(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._keep()

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over the addresses of brokers, which may have changed."""
        if image.brokers is self._brokers:
            return
        self._brokers = image.brokers
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
                self._failures.pop(node, None)
        self._registered = registered
        self._keep()

    def _wanted(self) -> list[NodeId]:
        configuration = self._configuration
        if configuration == EMPTY_CONFIGURATION:
            wanted = [*self._given, *self._told]
        elif self._me in configuration.voters:
            members = (member.node_id for member in configuration.members)
            wanted = [*members, *self._registered, *self._given]
        else:
            wanted = [member.node_id for member in configuration.voters]
        return [node for node in dict.fromkeys(wanted) if node != self._me.node_id]

    def _keep(self) -> None:
        found = {node: self.address_of(node) for node in self._wanted()}
        self._peers.keep(_PURPOSE, {node: address for node, address in found.items() if address is not None})


class HelloExchange(BasePeerWatcher):
    """Sends our address to every node we reach, stores theirs, and replies to introductions.

    `standing` is that reply: it changes when a blank node becomes a member.
    """

    def __init__(
        self,
        desk: PeerRpc,
        hub: PeerManager,
        book: AddressBook,
        address: Address | None,
        standing: Callable[[], IntroductionReply],
        features: "MemberFeatures",
    ) -> None:
        self._rpc = desk
        self._book = book
        self._features = features
        self._address = address
        self._standing = standing
        desk.serve(Introduction, self._introduced)
        hub.watch(self)

    def reached(self, node: NodeId, _identity: NodeIdentity) -> None:
        def answered(answer: RpcReply | None) -> None:
            if isinstance(answer, IntroductionReply):
                self._features.learn(node, answer.features)

        self._rpc.call(node, Introduction(self._address), ANSWER_MS, answered)

    def lost(self, node: NodeId, _ending: CloseReason) -> None:
        """Forget what it supports: it may come back as another version."""
        self._features.learn(node, ())

    def _introduced(self, peer: Peer, question: Introduction, respond: Respond) -> None:
        self._book.on_introduction(peer.node_id, peer.directory_id, question.address)
        respond(self._standing())


class MemberFeatures:
    """Which feature levels the members of the quorum support that are not brokers.

    Brokers say so when they register. A controller that is none of them says so over its link, so
    that it must be there when a level is raised.
    """

    def __init__(self, me: Member) -> None:
        self._me = me
        self._features: dict[NodeId, tuple[FeatureRange, ...]] = {}
        self._configuration = EMPTY_CONFIGURATION

    def members_changed(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def learn(self, node: NodeId, features: tuple[FeatureRange, ...]) -> None:
        self._features[node] = features

    def problem_with(self, command: UpdateFeatures, image: MetadataImage) -> ApiError | None:
        """The error if some member is not known to support what shall be used."""
        for member in self._configuration.members:
            node = member.node_id
            if node == self._me.node_id or image.broker(node) is not None:
                continue
            for update in command.updates:
                if not supports(self._features.get(node, ()), update.name, update.level):
                    detail = f"controller {node} is down, or does not support {update.name} at {update.level}"
                    return ApiError(ErrorKind.INVALID_FEATURE_LEVEL, detail)
        return None
