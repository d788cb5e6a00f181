"""What a node is built from."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.app.settings import static_settings
from penstock.broker.cluster import BrokerSessionOptions, QuorumOptions, Voter
from penstock.broker.partitions import FsyncMode
from penstock.config import Address as ConfiguredAddress
from penstock.config import Config
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.model import NodeId
from penstock.core.raft import RaftOptions
from penstock.gateways.kafka.connection import ConnectionLimits
from penstock.runtime import Address


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """A Kafka listener to open; without `advertised`, clients are told the address they came to."""

    bind: Address
    name: str = "PLAINTEXT"
    security: str = "PLAINTEXT"
    advertised: Address | None = None


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Everything about one node. `static` are its broker settings under Kafka's names.

    Without `peer` nobody can join this node; without `voters` a blank one founds a cluster alone.
    """

    data_dir: str
    node_id: NodeId
    listeners: tuple[ListenerOptions, ...]
    http: Address | None = None
    metrics: Address | None = None
    peer: Address | None = None
    voters: tuple[Voter, ...] = ()
    roles: tuple[str, ...] = ("broker", "controller")
    rack: str | None = None
    fsync: FsyncMode = FsyncMode.EVERY
    fsync_interval_ms: int = 1_000
    time_index_interval_ms: int = 1_000
    retention_check_ms: int = 300_000
    static: Mapping[str, str] = field(default_factory=lambda: NO_CONFIGS)
    quorum: QuorumOptions = field(default_factory=QuorumOptions)
    raft: RaftOptions = field(default_factory=RaftOptions)
    sessions: BrokerSessionOptions = field(default_factory=BrokerSessionOptions)
    # Requests that are not complete and answers that are not read yet: half for each.
    in_flight_bytes_max: int = 512 << 20
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


def options_from(config: Config) -> NodeOptions:
    """The options that a configuration stands for."""
    fsync = config.storage.fsync
    return NodeOptions(
        data_dir=os.path.abspath(config.node.data_dir),
        node_id=NodeId(config.node.id),
        listeners=tuple(
            ListenerOptions(
                _address(listener.bind),
                listener.name,
                listener.protocol,
                None if listener.advertised == "auto" else _address(listener.advertised),
            )
            for listener in config.listen.kafka_listeners
        ),
        http=_address(config.listen.http),
        metrics=_address(config.listen.metrics) if config.metrics.enabled else None,
        peer=None if config.peer is None else _address(config.peer),
        voters=tuple(
            Voter(NodeId(voter.node_id), _address(voter.address)) for voter in config.cluster.voters
        ),
        roles=config.node.roles,
        rack=config.node.rack or None,
        fsync=FsyncMode(fsync.mode),
        fsync_interval_ms=fsync.interval_ms,
        time_index_interval_ms=config.storage.time_index_interval_ms,
        retention_check_ms=config.storage.retention_check_ms,
        static=static_settings(config),
        in_flight_bytes_max=config.listen.in_flight_bytes_max,
    )


def _address(configured: ConfiguredAddress) -> Address:
    return Address(configured.host, configured.port)
