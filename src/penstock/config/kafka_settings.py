"""Broker settings under Kafka's names, in the node's own configuration.

Most of what Kafka's server.properties has is a setting of the node with another name, or can be changed
while the cluster runs. The rest is written as it is in Kafka, in `node.kafka_settings`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.core.metadata import ConfigResourceType
from penstock.core.metadata.configs import (
    BROKER_CONFIGS,
    ConfigLayers,
    DynamicUpdateMode,
    broken_orders,
    unknown_key,
)

# Kafka's name of a broker setting, and the setting of the node that decides it.
DECIDED_BY: Mapping[str, str] = {
    "advertised.listeners": "listen.advertised",
    "authorizer.class.name": "security.enabled",
    "auto.create.topics.enable": "topics.auto_create",
    "broker.heartbeat.interval.ms": "cluster.heartbeat_interval_ms",
    "broker.id": "node.id",
    "broker.rack": "node.rack",
    "broker.session.timeout.ms": "cluster.session_timeout_ms",
    "connections.max.reauth.ms": "security.sasl.reauthenticate_ms",
    "controller.quorum.voters": "cluster.voters",
    "default.replication.factor": "topics.replication_factor",
    "group.consumer.heartbeat.interval.ms": "groups.heartbeat_interval_ms",
    "group.consumer.migration.policy": "groups.migration_policy",
    "group.consumer.min.heartbeat.interval.ms": "groups.heartbeat_interval_ms_min",
    "group.consumer.session.timeout.ms": "groups.session_timeout_ms",
    "group.initial.rebalance.delay.ms": "groups.initial_rebalance_delay_ms",
    "group.max.session.timeout.ms": "groups.session_timeout_ms_max",
    "group.min.session.timeout.ms": "groups.session_timeout_ms_min",
    "group.queue.dead.letter.enable": "delivery.dead_letter",
    "group.queue.retries.max": "delivery.retries_max",
    "group.queue.visibility.timeout.ms": "delivery.visibility_timeout_ms",
    "listener.security.protocol.map": "listen.listeners",
    "listeners": "listen.kafka",
    "log.cleaner.backoff.ms": "storage.compaction_interval_ms",
    "log.dir": "node.data_dir",
    "log.dirs": "node.data_dir",
    "log.encryption.at.rest": "security.encryption.enabled",
    "log.flush.interval.messages": "storage.fsync.mode",
    "log.flush.interval.ms": "storage.fsync.interval_ms",
    "log.index.interval.bytes": "storage.index_interval_bytes",
    "log.retention.bytes": "topics.retention_bytes",
    "log.retention.check.interval.ms": "storage.retention_check_ms",
    "log.retention.hours": "topics.retention_hours",
    "log.scrub.bytes.per.second": "storage.scrub_bytes_per_second",
    "log.scrub.interval.ms": "storage.scrub_interval_ms",
    "log.segment.bytes": "storage.segment_bytes",
    "message.max.bytes": "topics.message_bytes_max",
    "node.id": "node.id",
    "num.partitions": "topics.partitions",
    "offsets.topic.num.partitions": "groups.offsets_partitions",
    "process.roles": "node.roles",
    "sasl.enabled.mechanisms": "security.sasl.mechanisms",
    "ssl.client.auth": "security.tls.client_auth",
    "super.users": "security.super_users",
}
# What a node is built with: these are shown, and nothing changes them.
BUILT_IN = (
    "controller.listener.names",
    "fetch.max.bytes",
    "inter.broker.listener.name",
    "replica.fetch.max.bytes",
)
# Leaders and the controller must agree on these: they are changed for all brokers at once.
SHARED_BY_ALL = ("min.insync.replicas", "unclean.leader.election.enable")


def kafka_settings(items: Sequence[str]) -> dict[str, str]:
    """The names and values of `node.kafka_settings`."""
    return {name.strip(): value.strip() for name, _, value in (item.partition("=") for item in items)}


def problems_with_kafka_settings(items: Sequence[str]) -> Iterator[str]:
    """What is wrong with `node.kafka_settings`, a sentence each."""
    names = [item.partition("=")[0].strip() for item in items]
    for item, name in zip(items, names, strict=True):
        if "=" not in item:
            yield f"{item!r} is not name=value"
        elif names.count(name) > 1:
            yield f"{name} is set more than once"
        else:
            problem = _problem(name, item.partition("=")[2].strip())
            if problem is not None:
                yield problem


def problems_together(
    items: Sequence[str], decided: Mapping[str, int], named: Callable[[str], str]
) -> Iterator[str]:
    """What `node.kafka_settings` and these settings of the node ask for that cannot be, a sentence each."""
    names = {name: setting for name, setting in DECIDED_BY.items() if setting in decided}
    static = {name: str(decided[setting]) for name, setting in names.items()} | kafka_settings(items)

    def shown(name: str) -> str:
        return named(names[name]) if name in names else name

    for order, least, most in broken_orders(ConfigLayers(ConfigResourceType.BROKER, static=static), static):
        yield f"{shown(order.lower)} = {least} {order.words} {shown(order.upper)} = {most}"


def _problem(name: str, value: str) -> str | None:
    definition = BROKER_CONFIGS.get(name)
    if definition is None:
        return unknown_key(ConfigResourceType.BROKER, name)
    if name in DECIDED_BY:
        return f"{name} is decided by {DECIDED_BY[name]}"
    if name in BUILT_IN:
        return f"{name} cannot be changed"
    if name in SHARED_BY_ALL or definition.update is DynamicUpdateMode.PER_BROKER:
        return f"{name} is changed while the cluster runs, with kafka-configs or any Admin client"
    return definition.problem(value)
