"""The node's configuration under the names that Kafka's tools know."""

import os
from collections.abc import Mapping

from penstock.config import Config
from penstock.core.metadata.configs import BROKER_CONFIGS


def static_settings(config: Config) -> Mapping[str, str]:
    """Every broker setting that the configuration decides, so that DescribeConfigs tells the truth.

    What is as Kafka has it anyway is left out: tools show it as a default, not as somebody's wish.
    """
    values = {**_node(config), **_topics(config), **_groups(config)}
    for key, value in values.items():
        complaint = BROKER_CONFIGS[key].problem(value)
        assert complaint is None, complaint
    return {key: value for key, value in values.items() if value != BROKER_CONFIGS[key].default}


def _node(config: Config) -> dict[str, str]:
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
        "log.retention.check.interval.ms": str(storage.retention_check_ms),
        "log.cleaner.backoff.ms": str(storage.compaction_interval_ms),
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
        "group.consumer.session.timeout.ms": str(groups.session_timeout_ms),
        "group.consumer.heartbeat.interval.ms": str(groups.heartbeat_interval_ms),
        "group.consumer.min.heartbeat.interval.ms": str(groups.heartbeat_interval_ms_min),
        "group.share.session.timeout.ms": str(groups.session_timeout_ms),
        "group.share.heartbeat.interval.ms": str(groups.heartbeat_interval_ms),
        "group.share.record.lock.duration.ms": str(delivery.visibility_timeout_ms),
        "group.share.delivery.count.limit": str(delivery.retries_max + 1),
        "offsets.topic.num.partitions": str(groups.offsets_partitions),
    }
