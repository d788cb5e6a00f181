"""The replication service of one node: leader of some partitions, follower of others."""

from collections import deque

from penstock.broker.cluster.peers import Channel, Peer, PeerManager
from penstock.broker.partitions import FollowerPartition, ReplicaManager
from penstock.broker.replication.fetch_server import ReplicaFetchServer
from penstock.broker.replication.fetcher import ReplicaFetcher
from penstock.broker.replication.isr_manager import IsrManager
from penstock.broker.replication.options import ReplicationMetrics, ReplicationOptions, Submit
from penstock.broker.replication.protocol import (
    CorruptBatchReport,
    FollowerProgress,
    LeaderResigned,
    RangeFetch,
    RangeFetchResponse,
    ReplicaFetch,
    ReplicaFetchResponse,
    RestartSession,
    decode,
    encode_resigned,
    key_of,
    partition_of,
)
from penstock.broker.replication.segment_refill import RangeFetchServer, SegmentRefill
from penstock.core.metadata import NO_LEADER, PEER_LISTENER, MetadataImage, broker_setting
from penstock.core.metadata import Partition as PartitionState
from penstock.core.model import (
    MILLISECOND,
    BrokerEpoch,
    Instant,
    LeaderEpoch,
    NodeId,
    ProtocolError,
    TopicId,
)
from penstock.core.replica import UNKNOWN_EPOCH
from penstock.observability import log as events
from penstock.runtime import Address, Buffer, CloseReason, NodeIdentity, Runtime, Timer

LOOK_MS, LOOK_MS_MAX = 200, 2_000
# A look at thousands of partitions takes no more than this share of the time.
LOOK_SHARE = 20
# Of more partitions that moved at once to one broker, the rest waits for the session to end.
RESIGNED_MAX = 1_000
RATE_SETTING = "leader.replication.throttled.rate"


class ReplicationService:
    """Handles the replication channel; see the package."""

    def __init__(
        self,
        runtime: Runtime,
        hub: PeerManager,
        partitions: ReplicaManager,
        submit: Submit,
        node_id: NodeId,
        options: ReplicationOptions | None = None,
    ) -> None:
        self._runtime = runtime
        self._peers = hub
        self._partitions = partitions
        self._options = options or ReplicationOptions()
        self._node_id = node_id
        self._broker_epoch = UNKNOWN_EPOCH
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._refills: dict[bytes, SegmentRefill] = {}
        # For new leaders to which the link is not open yet.
        self._unsent: dict[NodeId, deque[bytes]] = {}
        self._image: MetadataImage | None = None
        self._is_running = False
        self._check_timer: Timer | None = None
        self._check_took_ns = 0
        # As in the last image, which shares unchanged parts with the next.
        self._brokers: object = None
        self._configs: object = None
        self.metrics = ReplicationMetrics()
        self.metrics.watch(partitions.led)
        self.isr_manager = IsrManager(runtime, node_id, submit, self._options, self.metrics)
        self.fetch_server = ReplicaFetchServer(
            runtime, partitions, self._options, self.metrics, self.isr_manager.consider
        )
        self._range_server = RangeFetchServer(
            runtime, partitions, self._options.partition_bytes_max, self.fetch_server.throttle
        )
        hub.serve(Channel.REPLICATION, self)
        hub.watch(self, Channel.REPLICATION)
        partitions.on_roles_change(self._roles_changed)
        partitions.on_led_elsewhere(self._resigned)

    def start(self, broker_epoch: BrokerEpoch) -> None:
        """Start: the node is registered as a broker under this epoch."""
        self._broker_epoch = broker_epoch
        self._is_running = True
        self.isr_manager.start(broker_epoch)
        self._roles_changed()

    def on_metadata(self, image: MetadataImage) -> None:
        """New metadata was committed. Call this after `ReplicaManager.on_metadata`."""
        self._image = image
        if self._brokers is not image.brokers:
            self._brokers = image.brokers
            self._peers.keep("replication", _peers_of(image, self._node_id))
        if self._configs is not image.configs:
            self._configs = image.configs
            rate = broker_setting(image, RATE_SETTING, self._node_id)
            assert isinstance(rate, int)
            self.fetch_server.throttle.configure(rate)
        self.isr_manager.on_metadata(image)
        self._look_later()

    def stop(self) -> None:
        self._is_running = False
        if self._check_timer is not None:
            self._check_timer.cancel()
        self.isr_manager.stop()
        self.fetch_server.stop()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for refill in self._refills.values():
            refill.stop()

    def received(self, peer: Peer, frame: memoryview) -> None:  # noqa: C901 - one case per message
        """A frame of the replication channel."""
        if not self._is_running:
            return
        try:
            message = decode(frame)
        except ProtocolError as error:
            events.warning("replication.bad_frame", peer=peer.node_id, error=error)
            return
        match message:
            case ReplicaFetch():
                self.fetch_server.fetch(peer, message)
            case FollowerProgress():
                self.fetch_server.progress(peer, message)
            case CorruptBatchReport():
                self.fetch_server.on_corrupt_batch(message)
            case ReplicaFetchResponse() | RestartSession():
                self._heard_of_leader(peer.node_id, message)
            case LeaderResigned():
                topic_id, index = partition_of(message.key)
                epoch = LeaderEpoch(message.leader_epoch)
                self._partitions.leader_resigned(topic_id, index, peer.node_id, epoch)
            case RangeFetch():
                self._range_server.fetch(peer, message)
            case RangeFetchResponse():
                refill = self._refills.get(message.key)
                if refill is not None:
                    refill.answered(peer.node_id, message)

    def _resigned(self, topic_id: TopicId, state: PartitionState) -> None:
        """Tell the new leader that we have heard of it. Followers do so by fetching; we keep no replica."""
        if state.leader != NO_LEADER:
            resigned = LeaderResigned(key_of(topic_id, state.index), state.leader_epoch)
            self._unsent.setdefault(state.leader, deque(maxlen=RESIGNED_MAX)).append(
                encode_resigned(resigned)
            )
            self._send_resigned(state.leader)

    def _send_resigned(self, node: NodeId) -> None:
        unsent = self._unsent.get(node)
        while unsent and self._peers.send(Channel.REPLICATION, node, unsent[0]):
            unsent.popleft()
        if not unsent:
            self._unsent.pop(node, None)

    def _heard_of_leader(self, node: NodeId, message: ReplicaFetchResponse | RestartSession) -> None:
        fetcher = self._fetchers.get(node)
        if fetcher is None:
            return
        if isinstance(message, ReplicaFetchResponse):
            fetcher.answered(message)
        else:
            fetcher.restarted(message)

    def reached(self, node: NodeId, identity: NodeIdentity) -> None:  # noqa: ARG002
        """Start a new session on the new link."""
        if self._is_running and node in self._fetchers:
            self._fetchers[node].reached()

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        """Do nothing: the link is dialled again, and then a session starts."""

    def drained(self, node: NodeId, channel: Channel) -> None:
        if not self._is_running or channel is not Channel.REPLICATION:
            return
        self._send_resigned(node)
        if node in self._fetchers:
            self._fetchers[node].drained()

    def _roles_changed(self) -> None:
        if not self._is_running:
            return
        by_leader: dict[NodeId, dict[bytes, FollowerPartition]] = {node: {} for node in self._fetchers}
        for followed in self._partitions.followed():
            if followed.stopped or followed.needs_refill:
                # Its log takes no more writes, or has to be repaired first.
                continue
            key = key_of(followed.topic_id, followed.name.partition)
            by_leader.setdefault(followed.leader, {})[key] = followed
        for node, wanted in by_leader.items():
            fetcher = self._fetchers.get(node)
            if fetcher is None:
                fetcher = self._fetchers[node] = self._new_fetcher(node)
            fetcher.set_partitions(wanted)
        self._set_refills()
        self.fetch_server.roles_changed()
        self.isr_manager.roles_changed(self._partitions.led())
        self._look_later()

    def _set_refills(self) -> None:
        """Repair what has to be repaired before its leader is followed."""
        wanted = {
            key_of(one.topic_id, one.name.partition): one
            for one in self._partitions.followed()
            if one.needs_refill and not one.stopped
        }
        for key, refill in list(self._refills.items()):
            if wanted.get(key) is not refill.followed:
                self._refills.pop(key).stop()
        for key, followed in wanted.items():
            if key not in self._refills:
                self._refills[key] = refill = self._new_refill(key, followed)
                refill.start()

    def _new_refill(self, key: bytes, followed: FollowerPartition) -> SegmentRefill:
        def send(node: NodeId, frame: Buffer) -> bool:
            return self._peers.send(Channel.REPLICATION, node, frame)

        def sources() -> list[NodeId]:
            state = None if self._image is None else self._image.partition(*followed.name)
            others = () if state is None else state.replicas
            known = (followed.leader, self._node_id)
            return [followed.leader, *(node for node in others if node not in known)]

        def done() -> None:
            del self._refills[key]
            followed.needs_refill = False
            self._roles_changed()

        return SegmentRefill(
            self._runtime,
            self._partitions.side_disk,
            followed,
            sources,
            send,
            done,
            may_have_gaps=self._partitions.is_compacted(followed.name.topic),
        )

    def _look_later(self) -> None:
        """Check every partition later, once for many changes."""
        if self._check_timer is None and self._is_running:
            pause_ns = min(LOOK_SHARE * self._check_took_ns, LOOK_MS_MAX * MILLISECOND)
            deadline = Instant(self._runtime.clock.now() + max(LOOK_MS * MILLISECOND, pause_ns))
            self._check_timer = self._runtime.timers.at(deadline, self._check)

    def _check(self) -> None:
        self._check_timer = None
        began = self._runtime.clock.now()
        self.fetch_server.check_out_of_sync()
        self.metrics.set_partitions(self._partitions.led())
        self._check_took_ns = self._runtime.clock.now() - began

    def _new_fetcher(self, node: NodeId) -> ReplicaFetcher:
        def send(frame: Buffer) -> bool:
            return self._peers.send(Channel.REPLICATION, node, frame)

        def is_receiving() -> bool:
            return self._peers.is_receiving(node, Channel.REPLICATION)

        return ReplicaFetcher(
            self._runtime, node, self._broker_epoch, send, is_receiving, self._options, self.metrics
        )


def _peers_of(image: MetadataImage, node_id: NodeId) -> dict[NodeId, Address]:
    """Where the other brokers can be reached."""
    found = {}
    for broker in image.brokers.values():
        listener = broker.listener(PEER_LISTENER)
        if broker.node_id != node_id and listener is not None:
            found[broker.node_id] = Address(listener.host, listener.port)
    return found
