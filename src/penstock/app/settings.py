"""The node's configuration under the names that Kafka's tools know."""

import os
from collections.abc import Mapping

from penstock.broker.cluster import BrokerSessionOptions
from penstock.broker.replication.options import ReplicationOptions
from penstock.config import Config
from penstock.core.metadata import PEER_LISTENER
from penstock.core.metadata.configs import BROKER_CONFIGS
from penstock.gateways.kafka.connection import ConnectionLimits
from penstock.gateways.kafka.fetch_sessions import SessionLimits
from penstock.gateways.kafka.handlers.fetch import FETCH_BYTES_MAX


def static_settings(config: Config) -> Mapping[str, str]:
    """Every broker setting that the configuration decides, so that DescribeConfigs tells the truth.

    What is as Kafka has it anyway is left out: tools show it as a default, not as somebody's wish.
    """
    values = {**node_facts(config), **_topics(config), **_groups(config)}
    for key, value in values.items():
        complaint = BROKER_CONFIGS[key].problem(value)
        assert complaint is None, complaint
    return {key: value for key, value in values.items() if value != BROKER_CONFIGS[key].default}


def node_facts(config: Config) -> dict[str, str]:
    """What is only shown: how the node is, whoever reads it."""
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
        **_limits(),
    }


def _limits() -> dict[str, str]:
    connections, sessions = ConnectionLimits(), BrokerSessionOptions()
    return {
        "socket.request.max.bytes": str(connections.frame_bytes_max),
        "connections.max.idle.ms": str(connections.idle_ms_max),
        "max.incremental.fetch.session.cache.slots": str(SessionLimits().sessions_max),
        "fetch.max.bytes": str(FETCH_BYTES_MAX),
        "replica.fetch.max.bytes": str(ReplicationOptions().partition_bytes_max),
        "broker.session.timeout.ms": str(sessions.session_ms),
        "broker.heartbeat.interval.ms": str(sessions.heartbeat_ms),
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
    }
    if storage.fsync.mode == "every":
        values["log.flush.interval.messages"] = "1"
    elif storage.fsync.mode == "interval":
        values["log.flush.interval.ms"] = str(storage.fsync.interval_ms)
    return values


def _groups(config: Config) -> dict[str, str]:
    groups = config.groups
    return {
        "group.initial.rebalance.delay.ms": str(groups.initial_rebalance_delay_ms),
        "group.min.session.timeout.ms": str(groups.session_timeout_ms_min),
        "group.max.session.timeout.ms": str(groups.session_timeout_ms_max),
        "offsets.topic.num.partitions": str(groups.offsets_partitions),
    }
