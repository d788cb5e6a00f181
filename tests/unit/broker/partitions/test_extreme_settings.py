"""Whatever value a setting may have, a log under it can be made, written, read, shortened and reopened."""

from collections.abc import Iterator

import pytest

from penstock.core.metadata import (
    ALL_BROKERS,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    IncrementalAlterConfigs,
)
from penstock.core.metadata.configs import ConfigDefinition, ConfigType, DynamicUpdateMode, definitions
from penstock.core.model import ApiError, Offset, Timestamp
from penstock.core.records import check_batches
from penstock.storage.log import BatchTooLarge, CompactionRules
from tests.unit.broker.partitions.replicas_bench import Broker, ReplicasBench, batch

INT64_MAX = 2**63 - 1
WORDS = {
    "cleanup.policy": ("", "compact", "delete", "compact,delete"),
    "log.cleanup.policy": ("", "compact", "delete", "compact,delete"),
    "compression.type": ("producer", "none", "zstd", "lz4", "snappy", "gzip"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "log.message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "penstock.validation": ("header", "deep"),
}


def extremes(definition: ConfigDefinition) -> tuple[str, ...]:
    """The lowest and the highest value that is accepted, and those next to them."""
    if definition.type is ConfigType.BOOLEAN:
        return ("true", "false")
    if definition.type is ConfigType.DOUBLE:
        return tuple(text for text in ("0", "1e-300", "1") if definition.problem(text) is None)
    if definition.type not in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG):
        return WORDS.get(definition.name, ())
    known = int(definition.default or 1)
    lowest, highest = edge(definition, known, -INT64_MAX - 2), edge(definition, known, INT64_MAX + 1)
    near = (lowest, lowest + 1, 0, 1, highest - 1, highest)
    return tuple(str(value) for value in dict.fromkeys(near) if definition.problem(str(value)) is None)


def edge(definition: ConfigDefinition, good: int, bad: int) -> int:
    """The last good value on the way from a good one to a bad one."""
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if definition.problem(str(middle)) is None:
            good = middle
        else:
            bad = middle
    return good


def cases(kind: ConfigResourceType) -> Iterator[tuple[ConfigDefinition, str]]:
    for definition in definitions(kind).values():
        if definition.fixed is not None:
            continue  # has its default, and nothing else
        yield from ((definition, value) for value in extremes(definition))


TOPIC_CASES = list(cases(ConfigResourceType.TOPIC))
BROKER_CASES = [
    case
    for case in cases(ConfigResourceType.BROKER)
    if any(
        synonym.name == case[0].name
        for topic in definitions(ConfigResourceType.TOPIC).values()
        for synonym in topic.synonyms
    )
]
RULES = CompactionRules(min_dirty_ratio=0.0)


def named(value: object) -> str:
    return value.name if isinstance(value, ConfigDefinition) else str(value)


def alter(bench: ReplicasBench, resource: ConfigResource, key: str, value: str) -> None:
    change = ConfigChange(ConfigOperation.SET, key, value)
    reply = bench.perform(IncrementalAlterConfigs(resource, (change,)))
    assert not isinstance(reply, ApiError), reply


def exercise(broker: Broker) -> int:
    """Write, roll, read and expire; returns how many records were taken."""
    partition = broker.led
    log, taken = partition.log, 0
    for number in range(12):
        content = batch(*[b"%d" % number] * 3, timestamp=1_000 * number)
        try:
            partition.append(content, check_batches(content), Timestamp(2_000 * number))
        except BatchTooLarge:
            continue
        taken += 3
    broker.settle()
    log.roll()
    if log.start < log.end:
        assert log.read(log.start, 1 << 20).to_bytes()
        log.offset_for_timestamp(Timestamp(0))
    log.maybe_checkpoint(broker.timers.now())
    broker.settle()
    log.dirty_ratio(RULES, Timestamp(10**12))
    broker.partitions.maintenance.enforce_retention()
    broker.settle()
    return taken


def exercise_and_reopen(bench: ReplicasBench) -> None:
    exercise(bench[1])
    end = bench[1].led.log.end
    broker = bench.restart(1)
    assert broker.led.log.end == end
    exercise(broker)
    broker.partitions.close()


@pytest.mark.parametrize(("definition", "value"), TOPIC_CASES, ids=named)
def test_a_log_works_under_every_value_that_its_topic_may_have(
    definition: ConfigDefinition, value: str
) -> None:
    created = ReplicasBench().create(1, **{definition.name.replace(".", "_"): value})
    exercise_and_reopen(created)

    altered = ReplicasBench().create(1)
    exercise(altered[1])
    alter(altered, ConfigResource(ConfigResourceType.TOPIC, "orders"), definition.name, value)
    exercise_and_reopen(altered)


@pytest.mark.parametrize(("definition", "value"), BROKER_CASES, ids=named)
def test_a_log_works_under_every_value_that_its_broker_may_have(
    definition: ConfigDefinition, value: str
) -> None:
    configured = ReplicasBench(static={definition.name: value}).create(1)
    exercise_and_reopen(configured)

    if definition.update is DynamicUpdateMode.CLUSTER_WIDE:
        altered = ReplicasBench().create(1)
        exercise(altered[1])
        alter(altered, ConfigResource(ConfigResourceType.BROKER, ALL_BROKERS), definition.name, value)
        exercise_and_reopen(altered)


def test_the_extremes_are_the_edges_of_what_is_accepted() -> None:
    table = definitions(ConfigResourceType.TOPIC)

    assert extremes(table["index.interval.bytes"])[0] == "1"
    assert extremes(table["retention.ms"])[0] == "-1"
    assert extremes(table["segment.bytes"])[-1] == str(2**31 - 1)
    assert Offset(int(extremes(table["flush.messages"])[-1])) == INT64_MAX
