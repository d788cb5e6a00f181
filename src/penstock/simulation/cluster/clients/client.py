"""What every simulated client is made of: a host, connections, patience, and an idea of the cluster."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from penstock.core.metadata import NO_LEADER
from penstock.core.model import MILLISECOND, NodeId, Refused, Why
from penstock.simulation.cluster.clients.connections import Answered, Connection, Request
from penstock.simulation.cluster.door import Door, View
from penstock.simulation.cluster.journal import Journal, Place
from penstock.simulation.world import World

PATIENCE_NS = 1_500 * MILLISECOND
BACKOFF_MS = 30

# What an honest client may be told: it looks for the leader, or the coordinator, and tries again.
RETRIABLE = (
    Why.NOT_LEADER,
    Why.UNKNOWN_TOPIC,
    Why.FENCED_LEADER_EPOCH,
    Why.UNKNOWN_LEADER_EPOCH,
    Why.STORAGE_FAILED,
    Why.DAMAGED_LOG,
    Why.TIMED_OUT,
    Why.NOT_ENOUGH_REPLICAS,
    Why.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Why.OFFSET_NOT_AVAILABLE,
    Why.NOT_CONTROLLER,
    Why.NOT_COORDINATOR,
    Why.COORDINATOR_LOADING,
    Why.COORDINATOR_NOT_AVAILABLE,
)


class Nodes(Protocol):
    """The cluster as clients know it before they have asked anybody."""

    world: World
    journal: Journal

    def node_ids(self) -> list[NodeId]: ...

    def connect(self, host: str, node_id: int) -> Connection: ...


class Leader(NamedTuple):
    """Who leads a partition, and since when."""

    node_id: NodeId
    epoch: int


class Client:
    """A process on a host of its own."""

    def __init__(self, nodes: Nodes, host: str) -> None:
        self.host = host
        self.nodes = nodes
        self.journal = nodes.journal
        self.luck = nodes.world.random(f"client {host}")
        self._scheduler = nodes.world.scheduler
        self._connections: dict[int, Connection] = {}
        self._leaders: dict[Place, Leader] = {}
        self._wanting: list[Callable[[], None]] = []

    @property
    def now(self) -> int:
        return self._scheduler.now

    def ask(self, node_id: int, request: Request, answered: Answered, patience_ns: int = PATIENCE_NS) -> None:
        """Send a request on the connection to a node, opening one if need be.

        Who loses patience with one request hangs up, and loses all others on that connection.
        """
        self.journal.operations += 1
        connection = self._connections.get(node_id)
        if connection is None or connection.is_over:
            connection = self._connections[node_id] = self.nodes.connect(self.host, node_id)
        call = connection.ask(request, answered)
        self._scheduler.after(patience_ns, connection.give_up, call)

    def hang_up(self) -> None:
        """Close every connection, as the end of a process does."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def after_ms(self, delay_ms: float, act: Callable[..., None], *arguments: Any) -> None:
        self._scheduler.after(int(delay_ms * MILLISECOND), act, *arguments)

    def backoff_ms(self) -> float:
        return BACKOFF_MS * (0.5 + self.luck.random())

    def any_node(self) -> NodeId:
        return self.luck.choice(self.nodes.node_ids())

    def leader(self, place: Place) -> Leader | None:
        """Who leads, as far as this client was told."""
        return self._leaders.get(place)

    def look_around(self, then: Callable[[], None]) -> None:
        """Ask any node who leads what; those who ask meanwhile share the answer, or its loss."""
        self._wanting.append(then)
        if len(self._wanting) == 1:
            self.ask(self.any_node(), Door.metadata, self._looked_around)

    def _looked_around(self, reply: View | object) -> None:
        if isinstance(reply, View):
            self._learn(reply)
        wanting, self._wanting = self._wanting, []
        for then in wanting:
            then()

    def _learn(self, view: View) -> None:
        """Believe what is new: a node that is behind must not send us back to a leader of old."""
        for topic in view.image.each_topic():
            for partition in topic.partitions:
                place = (topic.name, partition.index)
                known = self._leaders.get(place)
                if partition.leader == NO_LEADER or (known and known.epoch > partition.leader_epoch):
                    continue
                self._leaders[place] = Leader(partition.leader, partition.leader_epoch)


def is_retriable(reply: object) -> bool:
    """Whether a client that was told this goes on: lost answers and passing refusals."""
    return not isinstance(reply, Refused) or reply.why in RETRIABLE
