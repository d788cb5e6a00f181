"""What every simulated client has: a host, connections, timeouts, and a view of the cluster."""

import enum
import random
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from penstock.core.metadata import MetadataImage
from penstock.core.model import MILLISECOND, NodeId
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.runtime import Address
from penstock.sim.cluster.clients.connection import Answered, ClientConnection, Observe
from penstock.sim.cluster.journal import Journal, Place
from penstock.sim.cluster.node import ClusterNode
from penstock.sim.cluster.options import TOPIC
from penstock.sim.tcp import SimulatedTcp
from penstock.sim.world import World

PATIENCE_NS = 700 * MILLISECOND
BACKOFF_MS = 30
# How often a new connection begins with ApiVersions.
ASK_VERSIONS = 0.3
SOFTWARE = "simulation"
AUTO_CREATION_SINCE = 4
NO_EPOCH = -1
# Errors a correct client may get: it looks for the leader, or the coordinator, and tries again.
RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class ClusterNodes(Protocol):
    """The cluster as clients know it before they have asked anybody."""

    world: World
    journal: Journal
    tcp: SimulatedTcp

    def bootstrap(self) -> dict[int, Address]:
        """Where nodes listen."""

    def newest_term(self) -> int:
        """The newest term of the quorum that any node knows, for the checkers."""

    def newest_image(self) -> MetadataImage | None:
        """What the node knows that knows most, for the checkers."""

    def node(self, node_id: int) -> ClusterNode:
        """A node as the checkers see it: clients have no use for it."""


class KnownLeader(NamedTuple):
    """Who leads a partition, and since when; -1 where the client's protocol has no epochs."""

    node_id: int
    epoch: int


class VersionPolicy(enum.Enum):
    """How old a client is."""

    NEWEST = "newest"
    OLDEST = "oldest"
    ANY = "any"


class ProtocolVersions:
    """The version of each API that one client speaks: the newest as a rule, the oldest, or any."""

    def __init__(self, luck: random.Random, policy: VersionPolicy | None = None) -> None:
        self._luck = luck
        self._vintage = (
            policy
            or luck.choices((VersionPolicy.NEWEST, VersionPolicy.OLDEST, VersionPolicy.ANY), (6, 1, 1))[0]
        )
        self._chosen: dict[type[Message], int] = {}

    def of(self, request: type[Message], *, until: int | None = None) -> int:
        """The version of an API; not above `until`, where the client lacks what later ones need."""
        chosen = self._chosen.get(request)
        if chosen is None:
            chosen = self._chosen[request] = self._choose(request.__schema__.versions)
        return chosen if until is None else min(chosen, until)

    def chosen(self) -> list[tuple[type[Message], int]]:
        """Those that the client has needed so far."""
        return list(self._chosen.items())

    def _choose(self, versions: range) -> int:
        if self._vintage is VersionPolicy.ANY:
            return self._luck.choice(versions)
        return versions[0 if self._vintage is VersionPolicy.OLDEST else -1]


class SimulatedClient:
    """A process on a host of its own."""

    def __init__(self, nodes: ClusterNodes, host: str, policy: VersionPolicy | None = None) -> None:
        self.host = host
        # Those whose leaders it asks for.
        self.topics: tuple[str, ...] = (TOPIC,)
        self.nodes = nodes
        self.journal = nodes.journal
        self.luck = nodes.world.random(f"client {host}")
        self.versions = ProtocolVersions(nodes.world.random(f"versions {host}"), policy)
        self._scheduler = nodes.world.scheduler
        self._connections: dict[int, ClientConnection] = {}
        self._addresses: dict[int, Address] = nodes.bootstrap()
        self._leaders: dict[Place, KnownLeader] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._wanting: list[Callable[[], None]] = []

    @property
    def now(self) -> int:
        return self._scheduler.now

    def ask(
        self,
        node_id: int,
        message: Message,
        version: int,
        answered: Answered,
        observe: Observe | None = None,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        """Send a request on the connection to a node, opening one if need be.

        A request that times out closes the connection, and all others on it are lost.
        """
        self.journal.operations += 1
        connection = self._connections.get(node_id)
        if connection is None or connection.is_over:
            address = self._addresses[node_id]
            connection = ClientConnection(self.nodes.tcp, self.host, address, self.journal.failures.append)
            self._connections[node_id] = connection
            if self.luck.random() < ASK_VERSIONS:
                self._ask_versions(connection)
        correlation_id = connection.ask(message, version, answered, observe)
        self._scheduler.after(patience_ns, connection.give_up, correlation_id)

    def _ask_versions(self, connection: ClientConnection) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version="1")
        connection.ask(request, self.versions.of(ApiVersionsRequest), self._told_versions, None)

    def _told_versions(self, reply: object) -> None:
        if isinstance(reply, ApiVersionsResponse):
            served = {row.api_key: range(row.min_version, row.max_version + 1) for row in reply.api_keys}
            for request, version in self.versions.chosen():
                if version not in served.get(request.__schema__.api_key or 0, ()):
                    self.journal.failures.append(f"not served: {request.__name__} {version} at {self.host}")

    def close(self) -> None:
        """Close every connection, as the end of a process does."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def after_ms(self, delay_ms: float, act: Callable[..., None], *arguments: Any) -> None:
        self._scheduler.after(int(delay_ms * MILLISECOND), act, *arguments)

    def backoff_ms(self) -> float:
        return BACKOFF_MS * (0.5 + self.luck.random())

    def any_node(self) -> int:
        return self.luck.choice(list(self._addresses))

    def reached_at(self, node_id: int, host: str, port: int) -> None:
        """A response named a node and its address."""
        self._addresses[node_id] = Address(host, port)

    def leader(self, place: Place) -> KnownLeader | None:
        """Who leads, as far as this client knows."""
        return self._leaders.get(place)

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic, if this client is new enough to know it."""
        return self._topic_ids.get(topic)

    def refresh_metadata(self, then: Callable[[], None]) -> None:
        """Ask any node who leads what; those who ask meanwhile share the response, or its loss."""
        self._wanting.append(then)
        if len(self._wanting) == 1:
            node_id = self.any_node()
            version = self.versions.of(MetadataRequest)
            topics = tuple(MetadataRequestTopic(name=topic) for topic in self.topics)
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=version < AUTO_CREATION_SINCE)
            node = self.nodes.node(node_id)
            self.ask(node_id, request, version, self._looked_around, lambda _: node.shows_metadata())

    def _looked_around(self, reply: object) -> None:
        if isinstance(reply, MetadataResponse):
            self._learn(reply)
        wanting, self._wanting = self._wanting, []
        for then in wanting:
            then()

    def _learn(self, metadata: MetadataResponse) -> None:
        for broker in metadata.brokers:
            self.reached_at(broker.node_id, broker.host, broker.port)
        for topic in metadata.topics:
            assert topic.name is not None
            if topic.topic_id.int:
                self._topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                place = (topic.name, partition.partition_index)
                self.hear_of_leader(place, partition.leader_id, partition.leader_epoch)

    def hear_of_leader(self, place: Place, node_id: int, epoch: int) -> None:
        """Believe what is new: a node that is behind must not send us back to a leader of old."""
        known = self._leaders.get(place)
        if node_id not in self._addresses or (known and known.epoch > epoch):
            return
        self._leaders[place] = KnownLeader(NodeId(node_id), epoch)


def is_retriable(code: int) -> bool:
    """Whether a client goes on after this error."""
    return code in RETRIABLE


class PacedClient(SimulatedClient):
    """Does one thing after the other, with a rest in between, until it is stopped."""

    def __init__(
        self, nodes: ClusterNodes, host: str, pace_ms: float, policy: VersionPolicy | None = None
    ) -> None:
        super().__init__(nodes, host, policy)
        self._pace_ms = pace_ms
        self._stopped = False

    def start(self) -> None:
        self._rest()

    def stop(self) -> None:
        self._stopped = True

    def _rest(self) -> None:
        if not self._stopped:
            self.after_ms(self._pace_ms * 2 * self.luck.random(), self._act)

    def _act(self) -> None:
        """Do the next thing, and rest when it is done."""
        raise NotImplementedError
