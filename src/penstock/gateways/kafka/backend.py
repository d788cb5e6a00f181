"""What the handlers of the Kafka door work with."""

from dataclasses import dataclass

from penstock.broker.cluster import Controller, QuorumAdmin
from penstock.broker.configs import ConfigService
from penstock.broker.coordinator.groups import GroupService
from penstock.broker.fetch import FetchService
from penstock.broker.list_offsets import OffsetLookup
from penstock.broker.partitions import ReplicaManager
from penstock.broker.produce import ProduceService
from penstock.broker.producer_ids import ProducerIdManager
from penstock.broker.topics import TopicService
from penstock.core.model import NodeId
from penstock.runtime import Address


@dataclass(frozen=True, slots=True)
class KafkaListener:
    """One Kafka listener of this node: where it is bound, and where clients are sent.

    Without an advertised address a client is told the one that it connected to.
    """

    name: str
    security: str
    bound: Address
    advertised: Address | None = None

    def address_for(self, local: tuple[str, int]) -> Address:
        """How to name this node to a client that connected to `local`."""
        return self.advertised or Address(*local)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Who this node is, once it has joined its cluster."""

    node_id: NodeId
    cluster_id: str
    listeners: tuple[KafkaListener, ...] = ()
    rack: str | None = None
    data_dir: str = ""

    def listener(self, name: str) -> KafkaListener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)


@dataclass(frozen=True, slots=True)
class Backend:
    """The services of one node."""

    node: NodeFacts
    controller: Controller
    partitions: ReplicaManager
    topics: TopicService
    configs: ConfigService
    producer_ids: ProducerIdManager
    producing: ProduceService
    fetching: FetchService
    lookups: OffsetLookup
    groups: GroupService
    quorum: QuorumAdmin
