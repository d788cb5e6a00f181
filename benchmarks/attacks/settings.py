"""Settings that must be refused or work: of a topic, of a broker, of all brokers."""

import itertools

from benchmarks.attacks.attack import Attacker, AttackTable
from benchmarks.attacks.batches import plain_batch, produce
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
settings = AttackTable("settings")

# Of a topic and, under the name of the broker's default, of all of them.
POISON = {
    "index.interval.bytes": ("0", "1", "-1", "2147483647"),
    "segment.index.bytes": ("4", "0", "12", "2147483647"),
    "segment.bytes": ("1", "14", "1048576", "2147483647"),
    "segment.ms": ("1", "9223372036854775807"),
    "segment.jitter.ms": ("9223372036854775807",),
    "max.message.bytes": ("0", "1", "2147483647"),
    "retention.ms": ("0", "1", "-1", "9223372036854775807"),
    "retention.bytes": ("0", "1", "-1"),
    "flush.messages": ("1", "0", "9223372036854775807"),
    "flush.ms": ("0", "9223372036854775807"),
    "min.cleanable.dirty.ratio": ("0", "1", "nan", "-0.0"),
    "min.compaction.lag.ms": ("9223372036854775807",),
    "max.compaction.lag.ms": ("1", "9223372036854775807"),
    "delete.retention.ms": ("0", "9223372036854775807"),
    "cleanup.policy": ("compact,delete", "compact", ""),
    "compression.type": ("zstd", "gzip", "uncompressed"),
    "message.timestamp.type": ("LogAppendTime",),
    "message.timestamp.before.max.ms": ("0", "9223372036854775807"),
    "message.timestamp.after.max.ms": ("0", "9223372036854775807"),
    "min.insync.replicas": ("0", "32767", "2147483647"),
    "file.delete.delay.ms": ("0", "9223372036854775807"),
    "unclean.leader.election.enable": ("true",),
}
BROKER_POISON = {
    "log.index.interval.bytes": POISON["index.interval.bytes"],
    "log.index.size.max.bytes": POISON["segment.index.bytes"],
    "log.segment.bytes": POISON["segment.bytes"],
    "log.roll.ms": POISON["segment.ms"],
    "message.max.bytes": POISON["max.message.bytes"],
    "log.retention.ms": POISON["retention.ms"],
    "log.cleaner.dedupe.buffer.size": ("0", "1", "9223372036854775807"),
    "log.cleaner.io.buffer.size": ("0", "1", "2147483647"),
    "log.cleaner.threads": ("0", "1000000"),
    "log.cleaner.backoff.ms": ("0",),
    "num.partitions": ("0", "2147483647"),
    "default.replication.factor": ("0", "32767"),
    "fetch.max.bytes": ("0", "1", "2147483647"),
    "max.connections": ("0", "1", "2147483647"),
    "max.connections.per.ip": ("0", "1"),
    "connections.max.idle.ms": ("0", "1"),
    "socket.request.max.bytes": ("1", "2147483647"),
    "group.max.size": ("0", "1"),
    "offsets.retention.minutes": ("0", "2147483647"),
    "transaction.max.timeout.ms": ("1", "2147483647"),
    "replica.lag.time.max.ms": ("0", "1"),
    "replica.fetch.max.bytes": ("0", "1"),
    "broker.session.timeout.ms": ("1", "2147483647"),
    "broker.heartbeat.interval.ms": ("1", "2147483647"),
    "num.io.threads": ("0", "1000000"),
    "num.recovery.threads.per.data.dir": ("0", "1000000"),
    "background.threads": ("0", "1000000"),
}


def alter(
    attacker: Attacker, connection: BrokerConnection, resource: tuple[int, str], name: str, value: str | None
) -> int:
    """Set one key, or delete it; returns the error code."""
    config = IncrementalAlterConfigsRequestConfig(
        name=name, config_operation=DELETE if value is None else SET, value=value
    )
    about = IncrementalAlterConfigsRequestResource(
        resource_type=resource[0], resource_name=resource[1], configs=(config,)
    )
    request = IncrementalAlterConfigsRequest(resources=(about,), validate_only=False)
    code = int(attacker.ask(connection, request).responses[0].error_code)
    attacker.counts["accepted" if code == ErrorCode.NONE else "refused"] += 1
    return code


def _two_topics(attacker: Attacker) -> None:
    attacker.create_topic("poisoned", partitions=3)


@settings.attack("poison-topic", prepare=_two_topics)
def poison_topic(attacker: Attacker) -> None:
    """Every setting of a topic at its edges, one after the other, while a client writes to the topic."""
    values = itertools.cycle([(name, value) for name, values in POISON.items() for value in values])

    def step(connection: BrokerConnection) -> None:
        name, value = next(values)
        resource = (TOPIC_RESOURCE, "poisoned")
        if alter(attacker, connection, resource, name, value) == ErrorCode.NONE:
            produce(attacker, connection, "poisoned", plain_batch())
            alter(attacker, connection, resource, name, None)

    attacker.insist(step)


@settings.attack("poison-new-topics")
def poison_new_topics(attacker: Attacker) -> None:
    """Topics that are made with a setting at its edge and stay."""
    values = [(name, value) for name, values in POISON.items() for value in values]

    def step(connection: BrokerConnection) -> None:
        if not values:
            attacker.pause()
            return
        name, value = values.pop()
        topic = CreateTopicsRequestTopic(
            name=f"made-{len(values)}",
            num_partitions=1,
            replication_factor=-1,
            assignments=(),
            configs=(CreateTopicsRequestConfig(name=name, value=value),),
        )
        made = attacker.ask(connection, CreateTopicsRequest(topics=(topic,), timeout_ms=10_000))
        is_made = made.topics[0].error_code == ErrorCode.NONE
        attacker.counts["accepted" if is_made else "refused"] += 1
        if is_made:
            produce(attacker, connection, topic.name, plain_batch())

    attacker.insist(step)


@settings.attack("poison-brokers")
def poison_brokers(attacker: Attacker) -> None:
    """Every setting of all brokers at its edges; each is taken back at once."""
    values = itertools.cycle([(name, value) for name, values in BROKER_POISON.items() for value in values])

    def step(connection: BrokerConnection) -> None:
        name, value = next(values)
        resource = (BROKER_RESOURCE, "")
        if alter(attacker, connection, resource, name, value) == ErrorCode.NONE:
            # With `max.connections` of 1 another connection may be refused: this one takes it back.
            alter(attacker, connection, resource, name, None)

    attacker.insist(step)


@settings.attack("config-churn", prepare=_two_topics)
def config_churn(attacker: Attacker) -> None:
    """A valid setting of a topic that changes as fast as it can."""
    ages = itertools.cycle(("1000000", "2000000"))

    def step(connection: BrokerConnection) -> None:
        alter(attacker, connection, (TOPIC_RESOURCE, "poisoned"), "retention.ms", next(ages))

    attacker.insist(step)
