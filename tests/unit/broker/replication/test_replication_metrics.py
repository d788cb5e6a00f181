"""What an operator sees of replication."""

from penstock.broker.replication import ReplicationMetrics
from penstock.core.model import NodeId
from penstock.observability import render
from tests.unit.broker.replication.stage import Stage


def shown(stage: Stage, node: int) -> dict[str, float]:
    page = render([metrics_of(stage, node)]).decode()
    rows = [line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in rows}


def metrics_of(stage: Stage, node: int) -> ReplicationMetrics:
    return stage.brokers[NodeId(node)].replication.metrics


def test_the_lag_of_each_follower_is_shown_by_its_leader() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a", "b")
    stage.run(300)
    stage.kill(3)
    stage.append("c", "d", "e")
    stage.run(300)

    shown_by_leader = shown(stage, 1)

    lag = 'penstock_replication_lag_messages{follower="%d",partition="0",topic="t"}'
    assert shown_by_leader[lag % 2] == 0
    assert shown_by_leader[lag % 3] == 3
    assert lag % 1 not in shown_by_leader
    assert not any("lag" in name for name in shown(stage, 2))


def test_a_leader_that_is_one_no_more_shows_no_lag() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.run(300)
    stage.fence(1)
    stage.run(300)

    assert not any("lag" in name for name in shown(stage, 1))
    assert any("lag" in name for name in shown(stage, 2))


def test_partitions_that_lack_replicas_are_counted() -> None:
    stage = Stage()
    stage.create(1, 2, 3, partitions=4, min_insync_replicas="2")
    stage.run(300)
    calm = shown(stage, 1)

    stage.kill(3)
    stage.run(300)
    lacking = shown(stage, 1)
    stage.kill(2)
    stage.run(300)
    alone = shown(stage, 1)

    under = ("penstock_under_replicated_partitions", "penstock_under_minimum_partitions")
    assert [[figures[name] for name in under] for figures in (calm, lacking, alone)] == [
        [0, 0],
        [4, 0],
        [4, 4],
    ]


def test_fetches_bytes_and_proposals_are_counted() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.append("a" * 1_000)
    stage.run(300)
    stage.kill(2)
    stage.start(2)
    stage.run(600)

    leader, follower = shown(stage, 1), shown(stage, 2)

    assert leader["penstock_replication_fetches_total"] > 1
    assert leader["penstock_replication_bytes_sent_total"] == stage.log(1).size_bytes
    assert leader['penstock_isr_proposals_total{outcome="accepted"}'] == 1
    assert follower["penstock_replication_fetches_total"] == 0
