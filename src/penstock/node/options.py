"""What a node is built from: its options, and the addresses that it reserves early.

A socket that is bound and does not listen reserves a port, and binding fails if another process
listens there; with SO_REUSEADDR the listener that comes later may bind the same address. That way
a node knows its addresses, chosen ports included, before it accepts clients.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import field

from penstock.broker.cluster import BrokerSessionOptions, QuorumOptions, Voter
from penstock.broker.coordinator.queues import QueueServiceOptions
from penstock.broker.partitions import FsyncMode
from penstock.broker.replication.options import ReplicationOptions
from penstock.config import Config
from penstock.config import ListenAddress as ConfiguredAddress
from penstock.config.kafka_settings import kafka_settings
from penstock.core.metadata import PEER_LISTENER
from penstock.core.metadata.configs import BROKER_CONFIGS, NO_CONFIGS
from penstock.core.metadata.configs.broker import STANDARD_AUTHORIZER
from penstock.core.model import NodeId
from penstock.core.raft import RaftOptions
from penstock.core.values import dataclass
from penstock.runtime import Address, AddressUnavailable
from penstock.security.options import (
    AuditOptions,
    EncryptionOptions,
    OAuthOptions,
    SecurityOptions,
    TlsOptions,
)
from penstock.server.gateway.options import GatewayOptions, RestOptions
from penstock.server.kafka.connection import ConnectionLimits
from penstock.server.kafka.handlers.fetch import FETCH_BYTES_MAX
from penstock.storage.journal import JournalOptions

EVERYWHERE = ("", "0.0.0.0", "::")
# Kafka's words for whether clients are asked for a certificate.
CLIENT_AUTH = {"none": "none", "want": "requested", "need": "required"}


def static_settings(config: Config) -> Mapping[str, str]:
    """Every broker setting that the configuration decides, for DescribeConfigs.

    Values equal to Kafka's defaults are left out: tools show them as defaults.
    """
    values = {**decided_settings(config), **kafka_settings(config.node.kafka_settings)}
    for key, value in values.items():
        complaint = BROKER_CONFIGS[key].problem(value)
        assert complaint is None, complaint
    return {key: value for key, value in values.items() if value != BROKER_CONFIGS[key].default}


def decided_settings(config: Config) -> dict[str, str]:
    """The broker settings that settings of the node decide, or that are as the node is built."""
    return {**node_facts(config), **_topics(config), **_groups(config), **_logins(config)}


def node_facts(config: Config) -> dict[str, str]:
    """Settings that are only shown."""
    listeners = config.listen.kafka_listeners
    data_dir = os.path.abspath(config.node.data_dir)
    return {
        "node.id": str(config.node.id),
        "broker.id": str(config.node.id),
        "process.roles": ",".join(config.node.roles),
        **({"broker.rack": config.node.rack} if config.node.rack else {}),
        "log.dir": data_dir,
        "log.dirs": data_dir,
        "controller.quorum.voters": ",".join(str(voter) for voter in config.cluster.voters),
        "listeners": ",".join(f"{listener.name}://{listener.bind}" for listener in listeners),
        "advertised.listeners": ",".join(
            f"{listener.name}://{listener.bind if listener.advertised == 'auto' else listener.advertised}"
            for listener in listeners
        ),
        "listener.security.protocol.map": ",".join(
            f"{listener.name}:{listener.protocol}" for listener in listeners
        ),
        "controller.listener.names": PEER_LISTENER,
        "inter.broker.listener.name": PEER_LISTENER,
        "log.retention.check.interval.ms": str(config.storage.retention_check_ms),
        "broker.session.timeout.ms": str(config.cluster.session_timeout_ms),
        "broker.heartbeat.interval.ms": str(config.cluster.heartbeat_interval_ms),
        **_limits(),
    }


def _limits() -> dict[str, str]:
    return {
        "fetch.max.bytes": str(FETCH_BYTES_MAX),
        "replica.fetch.max.bytes": str(ReplicationOptions().partition_bytes_max),
    }


def _topics(config: Config) -> dict[str, str]:
    topics, storage = config.topics, config.storage
    factor = -1 if topics.replication_factor == "auto" else topics.replication_factor
    values = {
        "auto.create.topics.enable": "true" if topics.auto_create else "false",
        "num.partitions": str(topics.partitions),
        "default.replication.factor": str(factor),
        "log.retention.hours": str(topics.retention_hours),
        "log.retention.bytes": str(topics.retention_bytes),
        "message.max.bytes": str(topics.message_bytes_max),
        "log.segment.bytes": str(storage.segment_bytes),
        "log.index.interval.bytes": str(storage.index_interval_bytes),
        "log.cleaner.backoff.ms": str(storage.compaction_interval_ms),
        "log.encryption.at.rest": "true" if config.security.encryption.enabled else "false",
        "log.scrub.bytes.per.second": str(storage.scrub_bytes_per_second),
        "log.scrub.interval.ms": str(storage.scrub_interval_ms),
    }
    if storage.fsync.mode == "every":
        values["log.flush.interval.messages"] = "1"
    elif storage.fsync.mode == "interval":
        values["log.flush.interval.ms"] = str(storage.fsync.interval_ms)
    return values


def _groups(config: Config) -> dict[str, str]:
    groups, delivery = config.groups, config.delivery
    return {
        "group.initial.rebalance.delay.ms": str(groups.initial_rebalance_delay_ms),
        "group.min.session.timeout.ms": str(groups.session_timeout_ms_min),
        "group.max.session.timeout.ms": str(groups.session_timeout_ms_max),
        "group.consumer.migration.policy": groups.migration_policy,
        "group.consumer.session.timeout.ms": str(groups.session_timeout_ms),
        "group.consumer.heartbeat.interval.ms": str(groups.heartbeat_interval_ms),
        "group.consumer.min.heartbeat.interval.ms": str(groups.heartbeat_interval_ms_min),
        "offsets.topic.num.partitions": str(groups.offsets_partitions),
        "group.queue.visibility.timeout.ms": str(delivery.visibility_timeout_ms),
        "group.queue.retries.max": str(delivery.retries_max),
        "group.queue.dead.letter.enable": "true" if delivery.dead_letter else "false",
    }


def _logins(config: Config) -> dict[str, str]:
    security = config.security
    logs_in = any(listener.protocol.startswith("SASL") for listener in config.listen.kafka_listeners)
    return {
        "authorizer.class.name": STANDARD_AUTHORIZER if security.enabled else "",
        "super.users": ";".join(f"User:{user}" for user in security.super_users),
        "sasl.enabled.mechanisms": ",".join(security.sasl.mechanisms) if logs_in else "",
        "connections.max.reauth.ms": str(security.sasl.reauthenticate_ms),
        "ssl.client.auth": CLIENT_AUTH[security.tls.client_auth],
    }


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """A Kafka listener to open; without `advertised`, clients get the address they connected to."""

    bind: Address
    name: str = "PLAINTEXT"
    security: str = "PLAINTEXT"
    advertised: Address | None = None


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Everything about one node. `static` are its broker settings under Kafka's names.

    Without `peer` no node can join this one; without `voters` a blank one bootstraps a cluster alone.
    """

    data_dir: str
    node_id: NodeId
    listeners: tuple[ListenerOptions, ...]
    http: Address | None = None
    metrics: Address | None = None
    peer: Address | None = None
    grpc: Address | None = None
    voters: tuple[Voter, ...] = ()
    roles: tuple[str, ...] = ("broker", "controller")
    rack: str | None = None
    fsync: FsyncMode = FsyncMode.EVERY
    fsync_interval_ms: int = 1_000
    time_index_interval_ms: int = 1_000
    retention_check_ms: int = 300_000
    # How old a checkpoint of a log becomes, and how often logs are asked whether one is due.
    checkpoint_ms: int = 10_000
    # Indexes of larger segments are rebuilt by a thread.
    rebuild_bytes_max: int = 256 << 10
    checkpoint_check_ms: int = 1_000
    # With less free space than this the disk counts as full.
    disk_free_bytes_min: int = 16 << 20
    journal: JournalOptions = field(default_factory=JournalOptions)
    static: Mapping[str, str] = field(default_factory=lambda: NO_CONFIGS)
    quorum: QuorumOptions = field(default_factory=QuorumOptions)
    raft: RaftOptions = field(default_factory=RaftOptions)
    sessions: BrokerSessionOptions = field(default_factory=BrokerSessionOptions)
    queues: QueueServiceOptions = field(default_factory=QueueServiceOptions)
    # Incomplete requests and unread responses: half for each.
    in_flight_bytes_max: int = 512 << 20
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    # Serves REST, WebSocket and gRPC; without it the node serves a few pages at `http` itself.
    gateway: GatewayOptions | None = None
    security: SecurityOptions = field(default_factory=SecurityOptions)


def options_from(config: Config) -> NodeOptions:
    """The options for a configuration."""
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
        grpc=_address(config.listen.grpc) if config.rest.enabled and "broker" in config.node.roles else None,
        voters=tuple(
            Voter(NodeId(voter.node_id), _address(voter.address)) for voter in config.cluster.voters
        ),
        roles=config.node.roles,
        rack=config.node.rack or None,
        fsync=FsyncMode(fsync.mode),
        fsync_interval_ms=fsync.interval_ms,
        time_index_interval_ms=config.storage.time_index_interval_ms,
        retention_check_ms=config.storage.retention_check_ms,
        checkpoint_ms=config.storage.checkpoint_interval_ms,
        disk_free_bytes_min=config.storage.disk_free_bytes_min,
        static=static_settings(config),
        sessions=BrokerSessionOptions(
            heartbeat_ms=config.cluster.heartbeat_interval_ms,
            session_ms=config.cluster.session_timeout_ms,
            report_grace_ms=config.cluster.report_grace_ms,
        ),
        in_flight_bytes_max=config.listen.in_flight_bytes_max,
        gateway=_gateway(config) if config.rest.enabled else None,
        security=_security(config),
    )


def _security(config: Config) -> SecurityOptions:
    security, tls, oauth = config.security, config.security.tls, config.security.oauth
    return SecurityOptions(
        enabled=security.enabled,
        super_users=security.super_users,
        open_without_rules=security.open_without_rules,
        admin_user=security.admin_user,
        admin_password_file=security.admin_password_file,
        data_dir=os.path.abspath(config.node.data_dir),
        mechanisms=security.sasl.mechanisms,
        reauthenticate_ms=security.sasl.reauthenticate_ms,
        peers=security.peers,
        tls=TlsOptions(
            tls.certificate,
            tls.key,
            tls.authority,
            tls.client_auth,
            tls.version_min,
            tls.principal_rules,
            tls.node_rules,
        )
        if tls.certificate
        else None,
        oauth=OAuthOptions(
            oauth.jwks,
            oauth.issuer,
            oauth.audience,
            oauth.scope,
            oauth.user_claim,
            oauth.clock_skew_ms,
            oauth.refresh_ms,
        )
        if oauth.jwks
        else None,
        audit=_audit(config),
        encryption=_encryption(config),
    )


def _encryption(config: Config) -> EncryptionOptions | None:
    encryption = config.security.encryption
    if not encryption.enabled:
        return None
    return EncryptionOptions(
        encryption.service,
        os.path.abspath(encryption.keyring) if encryption.keyring else "",
        encryption.variable,
        encryption.command,
        encryption.plugin,
        tuple((name, value) for name, _, value in (one.partition("=") for one in encryption.plugin_options)),
        encryption.timeout_ms,
        encryption.rotation_interval_ms,
        encryption.reseal_bytes_per_second,
    )


def _audit(config: Config) -> AuditOptions | None:
    audit = config.security.audit
    if not audit.enabled:
        return None
    return AuditOptions(
        audit_directory(config), audit.file_bytes_max, audit.files_max, topic=audit.topic, data=audit.data
    )


def audit_directory(config: Config) -> str:
    """Where the audit log of a node is."""
    return os.path.abspath(config.security.audit.directory or os.path.join(config.node.data_dir, "audit"))


def _gateway(config: Config) -> GatewayOptions:
    rest = config.rest
    return GatewayOptions(
        node_id=config.node.id,
        hung_timeout_ms=rest.hung_timeout_ms,
        nice=rest.nice,
        session_timeout_ms=config.groups.session_timeout_ms,
        rest=RestOptions(
            default_topic=rest.default_topic,
            body_bytes_max=rest.body_bytes_max,
            head_bytes_max=rest.head_bytes_max,
            connections_max=rest.connections_max,
            address_connections_max=rest.address_connections_max,
            requests_max=rest.requests_max,
            in_flight_bytes_max=rest.in_flight_bytes_max,
            body_timeout_ms=rest.body_timeout_ms,
            response_timeout_ms=rest.response_timeout_ms,
            poll_records_max=config.groups.poll_records_max,
        ),
        log_level=config.logging.level,
        log_format=config.logging.format,
    )


def _address(configured: ConfiguredAddress) -> Address:
    return Address(configured.host, configured.port)


class AddressInUse(AddressUnavailable):
    """An address that a node needs cannot be used; `name` says what would have listened there."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class PortReservation:
    """A reserved address; `address` has the actual port."""

    def __init__(self, wanted: Address) -> None:
        family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((wanted.host, wanted.port))
        except OSError as error:
            self._socket.close()
            raise AddressUnavailable(f"cannot listen on {wanted}: {error.strerror or error}") from error
        self.address = Address(wanted.host, self._socket.getsockname()[1])

    def close(self) -> None:
        """Release the reservation, after the listener is open."""
        self._socket.close()


class PortReservations:
    """Addresses by the name of what will listen there; all of them or none."""

    def __init__(self, wanted: dict[str, Address]) -> None:
        self._held: dict[str, PortReservation] = {}
        try:
            for name, address in wanted.items():
                self._held[name] = PortReservation(address)
        except AddressUnavailable as error:
            self.close()
            raise AddressInUse(name, str(error)) from error

    def __getitem__(self, name: str) -> Address:
        return self._held[name].address

    def close(self) -> None:
        for reservation in self._held.values():
            reservation.close()


def reachable(address: Address) -> Address:
    """An address that other machines can use, where the bound one means every interface."""
    if address.host in EVERYWHERE:
        return Address(socket.gethostname(), address.port)
    return address


def local(address: Address) -> Address:
    """An address that this machine can use."""
    if address.host in EVERYWHERE:
        return Address("::1" if ":" in address.host else "127.0.0.1", address.port)
    return address
