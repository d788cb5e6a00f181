from penstock.cli.cluster.admin_client import (
    FENCED,
    RUNNING,
    UNKNOWN,
    BrokerInfo,
    PartitionOverview,
    Reassignment,
    survey,
)

HEALTHY = PartitionOverview("t", 0, 1, (1, 2, 3), (1, 2, 3), 2)
BEHIND = PartitionOverview("t", 1, 2, (2, 3, 1), (2, 1), 2)
BELOW = PartitionOverview("t", 2, 3, (3, 1, 2), (3,), 2)
OFFLINE = PartitionOverview("u", 0, None, (4,), (4,), 1)
BROKERS = {
    1: BrokerInfo("a:1", "east", RUNNING),
    2: BrokerInfo("b:1", None, RUNNING),
    3: BrokerInfo("c:1", None, FENCED),
}


def test_partitions_are_sorted_by_what_is_wrong_with_them() -> None:
    found = survey(("id", 1), BROKERS, [HEALTHY, BEHIND, BELOW, OFFLINE], [])

    assert found.partitions == 4
    assert found.offline == (OFFLINE,)
    assert found.under_replicated == (BEHIND, BELOW)
    assert found.under_minimum == (BELOW,)


def test_a_topic_that_wants_more_in_sync_than_it_has_replicas_is_under_its_minimum() -> None:
    assert PartitionOverview("t", 0, 1, (1,), (1,), 2).is_under_minimum


def test_brokers_are_counted_with_what_they_hold_and_lead() -> None:
    found = survey(("id", None), BROKERS, [HEALTHY, BEHIND, BELOW, OFFLINE], [])

    rows = [(one.node_id, one.state, one.leads, one.replicas) for one in found.brokers]
    assert rows == [(1, RUNNING, 1, 3), (2, RUNNING, 1, 3), (3, FENCED, 1, 3), (4, UNKNOWN, 0, 1)]
    assert found.brokers[0].rack == "east"
    assert found.brokers[3].address is None


def test_a_move_is_never_done_while_it_is_listed() -> None:
    half = Reassignment("t", 0, (1, 2), (2,), (1,), bytes_done=50, bytes_all=100)
    whole = Reassignment("t", 0, (1, 2), (2,), (1,), bytes_done=100, bytes_all=100)
    removing_only = Reassignment("t", 0, (1, 2), (), (2,))
    unmeasured = Reassignment("t", 0, (1, 2), (2,), ())

    assert [one.percent for one in (half, whole, removing_only, unmeasured)] == [50, 99, 99, 0]
