"""What the handlers of the Kafka door work with."""

from dataclasses import dataclass

from penstock.core.model import NodeId
from penstock.runtime import Address
from penstock.services.cluster import Controller, QuorumDesk
from penstock.services.groups import Groups
from penstock.services.partitions import Partitions
from penstock.services.records import Fetching, Lookups, Producing
from penstock.services.topics import Configs, ProducerIds, Topics


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
    partitions: Partitions
    topics: Topics
    configs: Configs
    producer_ids: ProducerIds
    producing: Producing
    fetching: Fetching
    lookups: Lookups
    groups: Groups
    quorum: QuorumDesk
