"""Replication of one node: as the leader of some partitions, and as a follower of others."""

from penstock.core.metadata import MetadataImage
from penstock.core.model import BrokerEpoch, NodeId, ProtocolError
from penstock.core.replica import UNKNOWN_EPOCH
from penstock.observability import log as events
from penstock.runtime import Address, Buffer, Ending, Identity, Runtime
from penstock.services.partitions import Followed, Partitions
from penstock.services.peering import Channel, Peer, PeerHub
from penstock.services.replication.codec import Answer, Fetch, Progress, Restart, decode, key_of
from penstock.services.replication.fetching import Fetcher
from penstock.services.replication.options import ReplicationOptions, Submit
from penstock.services.replication.proposing import Proposing
from penstock.services.replication.serving import Serving

PEER_LISTENER = "PEER"


class Replication:
    """Handler of the replication channel; see the package."""

    def __init__(
        self,
        runtime: Runtime,
        hub: PeerHub,
        partitions: Partitions,
        submit: Submit,
        node_id: NodeId,
        options: ReplicationOptions | None = None,
    ) -> None:
        self._runtime = runtime
        self._hub = hub
        self._partitions = partitions
        self._options = options or ReplicationOptions()
        self._node_id = node_id
        self._broker_epoch = UNKNOWN_EPOCH
        self._fetchers: dict[NodeId, Fetcher] = {}
        self._is_running = False
        self.proposing = Proposing(runtime, node_id, submit, self._options)
        self.serving = Serving(runtime, partitions, self._options, self.proposing.consider)
        hub.serve(Channel.REPLICATION, self)
        hub.watch(self, Channel.REPLICATION)
        partitions.when_roles_change(self._roles_changed)

    def start(self, broker_epoch: BrokerEpoch) -> None:
        """Begin: the node is registered as a broker under this epoch."""
        self._broker_epoch = broker_epoch
        self._is_running = True
        self.proposing.start(broker_epoch)
        self._roles_changed()

    def follow(self, image: MetadataImage) -> None:
        """New metadata was committed. Call this after the partitions have followed it."""
        self._hub.keep("replication", _peers_of(image, self._node_id))
        self.proposing.follow(image)
        self.serving.follow()

    def stop(self) -> None:
        self._is_running = False
        self.proposing.stop()
        self.serving.stop()
        for fetcher in self._fetchers.values():
            fetcher.stop()

    def received(self, peer: Peer, frame: memoryview) -> None:
        """A frame of the replication channel."""
        if not self._is_running:
            return
        try:
            message = decode(frame)
        except ProtocolError as error:
            events.warning("replication.bad_frame", node=peer.node_id, error=error)
            return
        match message:
            case Fetch():
                self.serving.fetch(peer, message)
            case Progress():
                self.serving.progress(peer, message)
            case Answer() | Restart():
                self._heard_of_leader(peer.node_id, message)

    def _heard_of_leader(self, node: NodeId, message: Answer | Restart) -> None:
        fetcher = self._fetchers.get(node)
        if fetcher is None:
            return
        if isinstance(message, Answer):
            fetcher.answered(message)
        else:
            fetcher.restarted(message)

    def reached(self, node: NodeId, identity: Identity) -> None:  # noqa: ARG002
        """A session begins on every new link."""
        if self._is_running and node in self._fetchers:
            self._fetchers[node].reached()

    def lost(self, node: NodeId, ending: Ending) -> None:
        """Nothing to do: the link is dialled again, and then a session begins."""

    def drained(self, node: NodeId, channel: Channel) -> None:
        if self._is_running and channel is Channel.REPLICATION and node in self._fetchers:
            self._fetchers[node].drained()

    def _roles_changed(self) -> None:
        if not self._is_running:
            return
        by_leader: dict[NodeId, dict[bytes, Followed]] = {node: {} for node in self._fetchers}
        for followed in self._partitions.followed():
            key = key_of(followed.topic_id, followed.name.partition)
            by_leader.setdefault(followed.leader, {})[key] = followed
        for node, wanted in by_leader.items():
            fetcher = self._fetchers.get(node)
            if fetcher is None:
                fetcher = self._fetchers[node] = self._new_fetcher(node)
            fetcher.follow(wanted)
        self.serving.roles_changed()
        self.proposing.roles_changed(self._partitions.led())

    def _new_fetcher(self, node: NodeId) -> Fetcher:
        def send(frame: Buffer) -> bool:
            return self._hub.send(Channel.REPLICATION, node, frame)

        return Fetcher(self._runtime, node, self._broker_epoch, send, self._options)


def _peers_of(image: MetadataImage, node_id: NodeId) -> dict[NodeId, Address]:
    """Where the other brokers can be reached."""
    found = {}
    for broker in image.brokers.values():
        listener = broker.listener(PEER_LISTENER)
        if broker.node_id != node_id and listener is not None:
            found[broker.node_id] = Address(listener.host, listener.port)
    return found
