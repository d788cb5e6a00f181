"""What the handlers of the Kafka server work with."""

from typing import Any

from penstock.broker.access import AccessService
from penstock.broker.client_shares import ClientShares
from penstock.broker.cluster import Controller, QuorumAdmin
from penstock.broker.cluster.peers import PeerManager
from penstock.broker.configs import ConfigService
from penstock.broker.coordinator.groups import GroupService
from penstock.broker.coordinator.transactions import TransactionService
from penstock.broker.delays.delay_view import DelayView
from penstock.broker.delete_records import RecordDeletionService
from penstock.broker.encryption import MasterKeyAdmin
from penstock.broker.fetch import FetchService
from penstock.broker.list_offsets import OffsetLookup
from penstock.broker.partitions import ReplicaManager
from penstock.broker.produce import ProduceService
from penstock.broker.producer_ids import ProducerIdManager
from penstock.broker.queues.queue_admin import QueueAdmin
from penstock.broker.queues.queue_view import QueueView
from penstock.broker.queues.redrive import Redriver
from penstock.broker.read_replicas import ReadReplicaSelector
from penstock.broker.telemetry import TelemetryService
from penstock.broker.topics import TopicService
from penstock.broker.transactions.batch_commit import BatchCommitService
from penstock.broker.transactions.markers import MarkerWriter
from penstock.broker.transactions.offset_commits import TransactionalOffsetCommits
from penstock.core.model import NodeId
from penstock.core.protocol import Api
from penstock.core.values import dataclass
from penstock.observability import HistogramValue, Metrics
from penstock.runtime import Address
from penstock.server.kafka.loop_holds import LoopHolds


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """One Kafka listener of this node: where it is bound, and where clients are sent.

    Without an advertised address a client gets the one that it connected to.
    """

    name: str
    security: str
    bound: Address
    advertised: Address | None = None

    def address_for(self, local: tuple[str, int]) -> Address:
        """How to name this node to a client that connected to `local`."""
        return self.advertised or Address(*local)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Who this node is, once it has joined its cluster."""

    node_id: NodeId
    cluster_id: str
    listeners: tuple[AdvertisedListener, ...] = ()
    rack: str | None = None
    data_dir: str = ""

    def listener(self, name: str) -> AdvertisedListener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)


@dataclass(frozen=True, slots=True)
class Backend:
    """The services of one node."""

    node: NodeInfo
    controller: Controller
    peers: PeerManager
    partitions: ReplicaManager
    topics: TopicService
    configs: ConfigService
    producer_ids: ProducerIdManager
    produce_service: ProduceService
    markers: MarkerWriter
    transactional_offsets: TransactionalOffsetCommits
    fetch_service: FetchService
    offset_lookup: OffsetLookup
    record_deletion: RecordDeletionService
    groups: GroupService
    transactions: TransactionService
    delays: DelayView
    batch_commit: BatchCommitService
    queues: QueueView
    queue_admin: QueueAdmin
    redriver: Redriver
    quorum: QuorumAdmin
    telemetry: TelemetryService
    read_replicas: ReadReplicaSelector
    access: AccessService
    master_keys: MasterKeyAdmin
    # Whether access rules decide what clients may do.
    is_secured: bool = False


class KafkaMetrics(Metrics):
    """Requests by API, and what went wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.request_seconds = self.seconds(
            "penstock_request_seconds",
            "Time from a request's arrival to its response; `serve`: the handler, `total`: with waiting.",
            ("api", "stage"),
        )
        self.failures = self.counter(
            "penstock_handler_failures_total", "Requests that ended in an error nobody foresaw.", ()
        )
        self.protocol_errors = self.counter(
            "penstock_protocol_errors_total", "Connections closed because their bytes broke the protocol.", ()
        )
        self.connections = self.gauge("penstock_connections", "Open connections, by listener.", ("listener",))
        self.in_flight_bytes = self.gauge(
            "penstock_in_flight_bytes",
            "Bytes of incomplete requests, and of responses that are not read yet.",
            ("kind",),
        )
        self.held_back = self.counter(
            "penstock_connections_held_back_total",
            "Times that a connection was not read: the bytes in flight were used up, or it was others' turn.",
            ("kind",),
        )
        self.loop_holds_total = self.counter(
            "penstock_loop_holds_total",
            "Requests that kept a node from all else for more than 50 ms: see kafka.held_the_loop.",
            ("api",),
        )
        self.loop_holds = LoopHolds(self.loop_holds_total)
        self.kept_entries = self.gauge(
            "penstock_client_entries",
            "What the node keeps for clients: fetch sessions, share sessions, waiting fetches, producers.",
            ("kind",),
        )
        self.kept_partitions = self.gauge(
            "penstock_client_entry_partitions", "Partitions of those entries.", ("kind",)
        )
        self.lost_entries = self.gauge(
            "penstock_client_entries_lost",
            "Entries of clients that were evicted or refused since the start, because there was no room.",
            ("kind",),
        )
        self.refused_connections = self.gauge(
            "penstock_connections_refused",
            "Connections that were refused since the start, because there were too many, or of one address.",
            (),
        )
        self.evicted = self.counter(
            "penstock_connections_evicted_total",
            "Connections closed because others waited for the memory that they used.",
            ("kind",),
        )
        # The handler's time and the total time, by API key, updated for every request.
        self.by_api: dict[int, tuple[HistogramValue, HistogramValue]] = {}

    def read_shares(self, kind: str, shares: ClientShares[Any]) -> None:
        """Show what clients hold of one kind."""
        self.kept_entries.read(lambda: len(shares), kind)
        self.kept_partitions.read(lambda: shares.weight, kind)
        self.lost_entries.read(lambda: shares.evictions + shares.refusals, kind)

    def figures_of(self, api: Api) -> tuple[HistogramValue, HistogramValue]:
        """The row of `by_api`, created when an API is first requested."""
        served, answered = (self.request_seconds.of(api.name, stage) for stage in ("serve", "total"))
        self.by_api[api.key] = (served, answered)
        return served, answered
