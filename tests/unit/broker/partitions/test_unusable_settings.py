"""Whatever settings are committed, the node lives, and the settings can be corrected.

Numbers out of range count as the nearest that is allowed. What cannot be read at all puts the partitions of
its topic offline, and nothing else.
"""

from uuid import UUID

import pytest

from penstock.core.metadata import (
    ALL_BROKERS,
    ConfigResourceType,
    ConfigSet,
    CreateTopic,
    DeleteTopic,
    ReplicaAssignment,
    broker_setting,
)
from penstock.core.metadata.configs import CleanupPolicy
from penstock.core.model import NodeId, PartitionIndex, TopicId
from tests.support.recorded_events import recorded_events
from tests.unit.broker.partitions.replicas_bench import Producer, ReplicasBench
from tests.unit.core.metadata.clusters import perform

OTHER_ID = TopicId(UUID(int=78))
POISON = [
    (ConfigResourceType.TOPIC, "orders", "index.interval.bytes", "often"),
    (ConfigResourceType.TOPIC, "orders", "segment.index.bytes", ""),
    (ConfigResourceType.TOPIC, "orders", "retention.ms", "for ever"),
    (ConfigResourceType.TOPIC, "orders", "cleanup.policy", "shred"),
]
OUT_OF_RANGE = [
    ("index.interval.bytes", "0", "index_interval_bytes", 1),
    ("index.interval.bytes", str(2**31 - 1), "index_interval_bytes", 1 << 20),
    ("segment.index.bytes", "4", "segment_index_bytes", 64),
    ("segment.bytes", "0", "segment_bytes", 512),
    ("segment.bytes", str(2**40), "segment_bytes", 2**31 - 1),
    ("segment.ms", "0", "segment_ms", 1),
    ("retention.ms", "-7", "retention_ms", -1),
    ("retention.bytes", str(-(2**63) - 1), "retention_bytes", -1),
    ("max.message.bytes", "3", "max_message_bytes", 100),
    ("max.message.bytes", str(2**31 - 1), "max_message_bytes", 16 << 20),
]


@pytest.fixture
def bench() -> ReplicasBench:
    """Two topics on broker 1, each with a record."""
    bench = ReplicasBench().create(1)
    placed = ReplicaAssignment(PartitionIndex(0), (NodeId(1),))
    bench.perform(CreateTopic("other", OTHER_ID, assignments=(placed,)))
    Producer(bench[1]).append(b"kept")
    return bench


def commit(bench: ReplicasBench, kind: ConfigResourceType, name: str, key: str, value: str) -> None:
    """Have a value in the metadata that nobody has checked."""
    bench.machine.replay((ConfigSet(kind, name, key, value),))


@pytest.mark.parametrize(("kind", "name", "key", "value"), POISON)
def test_a_node_starts_without_the_partitions_whose_settings_cannot_be_used(
    bench: ReplicasBench, kind: ConfigResourceType, name: str, key: str, value: str
) -> None:
    commit(bench, kind, name, key, value)

    with recorded_events() as events:
        broker = bench.restart(1)

    assert broker.partitions.find("orders", 0) is None
    assert broker.partitions.find("other", 0) is not None
    (event,) = events.named("topic.settings_invalid")
    assert (event["topic"], event["setting"], event["value"]) == ("orders", key, value)
    assert [offline["partition"] for offline in events.named("partition.offline")] == ["orders/0"]


@pytest.mark.parametrize("name", [ALL_BROKERS, "1"])
def test_what_brokers_have_and_nobody_can_read_counts_as_not_set(bench: ReplicasBench, name: str) -> None:
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.segment.bytes", "5000")
    commit(bench, ConfigResourceType.BROKER, name, "log.index.interval.bytes", "seldom")

    with recorded_events() as events:
        broker = bench.restart(1)

    assert len(broker.partitions) == 2
    options = broker.partitions.options("orders")
    assert (options.segment_bytes, options.index_interval_bytes) == (5000, 4096)
    (event,) = events.named("setting.not_allowed")
    assert (event["setting"], event["value"]) == ("log.index.interval.bytes", "seldom")


@pytest.mark.parametrize("key", ["log.retention.ms", "log.retention.bytes", "log.cleanup.policy"])
def test_nothing_is_deleted_while_a_retention_of_brokers_cannot_be_read(
    bench: ReplicasBench, key: str
) -> None:
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, key, "never")

    broker = bench.restart(1)

    assert broker.partitions.options("orders").cleanup is CleanupPolicy.NOTHING
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, key, "compact" if "policy" in key else "1000")
    bench.follow()
    assert broker.partitions.options("orders").cleanup is not CleanupPolicy.NOTHING


@pytest.mark.parametrize(("kind", "name", "key", "value"), POISON)
def test_a_usable_value_brings_the_partition_online_without_a_restart(
    bench: ReplicasBench, kind: ConfigResourceType, name: str, key: str, value: str
) -> None:
    good = {"retention.ms": "-1", "cleanup.policy": "delete"}.get(key, "4096")
    commit(bench, kind, name, key, value)
    bench.restart(1)

    commit(bench, kind, name, key, good)
    bench.follow()

    assert bench[1].led.log.end == 1
    assert Producer(bench[1]).append(b"more") == 2


@pytest.mark.parametrize(("kind", "name", "key", "value"), POISON)
def test_a_running_node_goes_on_with_the_former_settings(
    bench: ReplicasBench, kind: ConfigResourceType, name: str, key: str, value: str
) -> None:
    before = bench[1].partitions.options("orders")
    commit(bench, kind, name, key, value)

    with recorded_events() as events:
        bench.follow()

    assert Producer(bench[1]).append(b"more") == 2
    assert bench[1].partitions.options("orders") == before
    (event,) = events.named("topic.settings_invalid")
    assert (event["topic"], event["setting"], event["value"]) == ("orders", key, value)


def test_a_new_topic_under_unusable_settings_waits_for_better_ones() -> None:
    bench = ReplicasBench()
    placed = ReplicaAssignment(PartitionIndex(0), (NodeId(1),))
    perform(bench.machine, CreateTopic("orders", OTHER_ID, assignments=(placed,)))
    commit(bench, *POISON[0])
    bench.follow()

    assert bench[1].partitions.find("orders", 0) is None
    commit(bench, *POISON[0][:3], "4096")
    bench.follow()

    assert Producer(bench[1]).append(b"first") == 1


def test_a_partition_that_is_offline_can_be_deleted_and_made_anew(bench: ReplicasBench) -> None:
    commit(bench, *POISON[0])
    bench.restart(1)

    bench.perform(DeleteTopic("orders"))
    assert not bench[1].disk.exists("logs/orders/0")
    bench.create(1)

    assert Producer(bench[1]).append(b"first") == 1


def test_a_broker_setting_that_cannot_be_used_counts_as_not_set(bench: ReplicasBench) -> None:
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, "leader.replication.throttled.rate", "none")

    assert broker_setting(bench.image, "leader.replication.throttled.rate", NodeId(1)) == 2**63 - 1


@pytest.mark.parametrize(("key", "value", "option", "used"), OUT_OF_RANGE)
def test_a_number_out_of_range_counts_as_the_nearest_that_is_allowed(
    bench: ReplicasBench, key: str, value: str, option: str, used: int
) -> None:
    commit(bench, ConfigResourceType.TOPIC, "orders", key, value)

    with recorded_events() as events:
        bench.follow()
        running = bench[1].partitions.options("orders")
        restarted = bench.restart(1).partitions.options("orders")

    assert (getattr(running, option), getattr(restarted, option)) == (used, used)
    assert Producer(bench[1]).append(b"") == 2
    reported = events.named("setting.not_allowed")
    said = [(event["topic"], event["setting"], event["value"]) for event in reported]
    assert said == [("orders", key, value)] * 2
    assert str(used) in reported[0]["problem"]


def test_a_number_of_all_brokers_out_of_range_is_reported_once_for_all_topics(bench: ReplicasBench) -> None:
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.index.interval.bytes", "0")

    with recorded_events() as events:
        broker = bench.restart(1)

    assert len(broker.partitions) == 2
    assert broker.partitions.options("orders").index_interval_bytes == 1
    (event,) = events.named("setting.not_allowed")
    assert (event["topic"], event["setting"], event["value"]) == ("", "log.index.interval.bytes", "0")


def test_a_partition_that_is_offline_says_why_and_is_counted(bench: ReplicasBench) -> None:
    commit(bench, *POISON[0])

    broker = bench.restart(1)

    assert broker.partitions.offline_reason("orders", 0) == "its topic's settings are not valid"
    assert broker.partitions.offline_reason("other", 0) is None
    assert broker.partitions.offline_count == 1
    commit(bench, *POISON[0][:3], "4096")
    bench.follow()
    assert broker.partitions.offline_reason("orders", 0) is None
    assert broker.partitions.offline_count == 0


def test_the_options_of_a_topic_that_is_offline_can_be_asked_for(bench: ReplicasBench) -> None:
    commit(bench, ConfigResourceType.TOPIC, "orders", "max.message.bytes", "5000")
    commit(bench, *POISON[0])
    broker = bench.restart(1)

    options = broker.partitions.options("orders")

    assert options.max_message_bytes == 5000
    assert options.cleanup is CleanupPolicy.NOTHING


def test_a_partition_that_is_offline_takes_what_the_journal_has_of_it() -> None:
    """A journal that is full would give it up."""
    bench = ReplicasBench(journal=True).create(1)
    Producer(bench[1]).append(b"kept")
    segment = f"logs/orders/0/{0:020}.log"
    size = bench[1].disk.size(segment)
    bench[1].disk.open(segment).truncate(0)
    commit(bench, *POISON[0])

    broker = bench.restart(1)

    assert broker.partitions.find("orders", 0) is None
    assert broker.disk.size(segment) == size
    commit(bench, *POISON[0][:3], "4096")
    broker.partitions.on_metadata(bench.image)
    broker.settle()
    assert broker.led.log.end == 1
