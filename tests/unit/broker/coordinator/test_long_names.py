"""Clients may call groups and themselves what they like: that is not kept when they are gone."""

from penstock.broker.coordinator.group_metrics import ClientKey, ConsumptionTracker, GroupMetrics
from penstock.broker.coordinator.group_topics import GroupTimeouts
from penstock.core.metadata import MetadataImage
from penstock.core.model import NodeId, Offset, PartitionIndex, TopicName, TopicPartition
from tests.support.kept_memory import kept_bytes, long_names

ORDERS = TopicPartition(TopicName("orders"), PartitionIndex(0))


def test_timeouts_of_groups_with_long_names_are_not_kept() -> None:
    timeouts = GroupTimeouts(NodeId(1), MetadataImage(), {})

    def ask() -> None:
        assert len({timeouts(name) for name in long_names()}) == 1

    assert kept_bytes(ask) < 1 << 20


def test_where_clients_with_long_names_began_is_not_kept() -> None:
    tracker = ConsumptionTracker(GroupMetrics())

    def look_up() -> None:
        for name in long_names():
            tracker.looked_up(ClientKey(name, "/10.0.0.1"), ORDERS, Offset(0))

    assert kept_bytes(look_up) < 1 << 20
    tracker.looked_up(ClientKey("short", "/10.0.0.1"), ORDERS, Offset(0))
    assert len(tracker) == 1
