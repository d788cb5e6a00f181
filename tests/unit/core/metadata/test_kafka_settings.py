"""Every setting of Kafka 4.3 is defined or refused with a reason.

`kafka-4.3-settings.tsv` has kind, name and type of each, as Kafka's own definitions list them.
"""

from pathlib import Path

import pytest

from penstock.core.metadata import (
    ALL_BROKERS,
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    IncrementalAlterConfigs,
)
from penstock.core.metadata.configs import REFUSED_CONFIGS, definitions
from penstock.core.model import ApiError, ErrorKind
from tests.unit.core.metadata.clusters import cluster, perform

ROWS = [
    line.split("\t") for line in (Path(__file__).parent / "kafka-4.3-settings.tsv").read_text().splitlines()
]
KAFKA: dict[ConfigResourceType, dict[str, str]] = {
    kind: {name: type_ for row_kind, name, type_ in ROWS if row_kind == kind.name.lower()}
    for kind in ConfigResourceType
}
# Settings of brokers that Kafka takes while it runs, without a definition, or that an authorizer defines;
# and the one that Kafka 4.0 still had.
UNDEFINED_IN_KAFKA = {
    "follower.replication.throttled.rate",
    "leader.imbalance.per.broker.percentage",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
}
OWN = {
    ConfigResourceType.TOPIC: {"encryption.at.rest", "penstock.validation"},
    ConfigResourceType.BROKER: {
        "auto.create.topics.burst",
        "auto.create.topics.per.second",
        "broker.drained",
        "create.partitions.max",
        "group.queue.backoff.max.ms",
        "group.queue.backoff.ms",
        "group.queue.dead.letter.enable",
        "group.queue.retries.max",
        "group.queue.visibility.timeout.ms",
        "group.queue.window.max",
        "log.encryption.at.rest",
        "log.quarantine.drop.before.ms",
        "log.scrub.bytes.per.second",
        "log.scrub.interval.ms",
        "log.scrub.requested.ms",
        "max.broker.partitions",
        "max.incremental.fetch.session.cache.partitions",
        "max.waiting.fetch.partitions",
        "offsets.memory.max.bytes",
        "offsets.metadata.memory.max.bytes",
        "group.metadata.memory.max.bytes",
        "producer.ids.max",
    },
    ConfigResourceType.GROUP: {
        "queue.backoff.max.ms",
        "queue.backoff.ms",
        "queue.dead.letter.enable",
        "queue.key.ordered",
        "queue.retries.max",
        "queue.start",
        "queue.visibility.timeout.ms",
        "queue.window.max",
    },
    ConfigResourceType.CLIENT_METRICS: set[str](),
}
# Kafka reads these as numbers of 16 bits; every value that fits is the same here.
WIDER = {
    "offsets.topic.replication.factor": "SHORT",
    "transaction.state.log.replication.factor": "SHORT",
}


@pytest.mark.parametrize("kind", list(ConfigResourceType))
def test_every_setting_of_kafka_is_defined_or_refused_and_not_both(kind: ConfigResourceType) -> None:
    table, refused = definitions(kind), REFUSED_CONFIGS[kind]
    others = OWN[kind] | (UNDEFINED_IN_KAFKA if kind is ConfigResourceType.BROKER else set())

    assert set(table) & set(refused) == set()
    assert set(KAFKA[kind]) - set(table) - set(refused) == set()
    assert (set(table) | set(refused)) - set(KAFKA[kind]) == others


@pytest.mark.parametrize("kind", list(ConfigResourceType))
def test_a_setting_has_the_type_that_it_has_in_kafka(kind: ConfigResourceType) -> None:
    kafka = {name: "STRING" if type_ == "CLASS" else type_ for name, type_ in KAFKA[kind].items()}

    ours = {name: WIDER.get(name, key.type.name) for name, key in definitions(kind).items() if name in kafka}

    assert ours == {name: kafka[name] for name in ours}


@pytest.mark.parametrize("kind", list(ConfigResourceType))
def test_a_refused_setting_is_named_with_the_reason(kind: ConfigResourceType) -> None:
    machine = cluster(brokers=1)
    resource = ConfigResource(kind, ALL_BROKERS if kind is ConfigResourceType.BROKER else "x")

    for name, reason in REFUSED_CONFIGS[kind].items():
        change = IncrementalAlterConfigs(resource, (ConfigChange(ConfigOperation.SET, name, "1"),))
        wanted = ApiError(ErrorKind.INVALID_CONFIG, f"{name} is not supported: {reason}")

        assert perform(machine, change) == wanted
        if kind is not ConfigResourceType.TOPIC:
            assert perform(machine, AlterConfigs(resource, ((name, "1"),))) == wanted
