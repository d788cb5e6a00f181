"""Settings that are committed and that no log can live with put their partitions offline, not the node."""

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
from penstock.core.model import NodeId, PartitionIndex, TopicId
from tests.support.recorded_events import recorded_events
from tests.unit.broker.partitions.replicas_bench import Producer, ReplicasBench

OTHER_ID = TopicId(UUID(int=78))
POISON = [
    (ConfigResourceType.TOPIC, "orders", "index.interval.bytes", "0"),
    (ConfigResourceType.TOPIC, "orders", "segment.index.bytes", "4"),
    (ConfigResourceType.TOPIC, "orders", "retention.ms", "for ever"),
    (ConfigResourceType.TOPIC, "orders", "cleanup.policy", "shred"),
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


def test_a_broker_wide_value_is_named_under_the_key_that_was_set(bench: ReplicasBench) -> None:
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.index.interval.bytes", "0")

    with recorded_events() as events:
        broker = bench.restart(1)

    assert len(broker.partitions) == 0
    assert {event["setting"] for event in events.named("topic.settings_invalid")} == {
        "log.index.interval.bytes"
    }


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
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.index.size.max.bytes", "4")
    bench.follow()

    bench.create(1)
    assert bench[1].partitions.find("orders", 0) is None
    commit(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.index.size.max.bytes", "4096")
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
