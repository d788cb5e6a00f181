"""Queues of a cluster: any node is asked, and what was decided survives whoever decided it."""

import pytest

from penstock.broker.queues.peers import ReceivedRecords
from penstock.core.metadata import QUEUES_TOPIC
from penstock.core.model import ErrorKind
from penstock.core.queues import ReleaseRecords
from tests.unit.broker.queues.queue_stage import TOPIC, QueueConsumer, QueueStage, Reply, values

STALE = ErrorKind.INVALID_RECORD_STATE


def kill(stage: QueueStage, number: int) -> None:
    stage.nodes[number].backend = None
    stage.world.nodes[f"n{number}"].kill()


def start(stage: QueueStage, number: int) -> None:
    stage.world.nodes[f"n{number}"].start()
    stage.until(lambda: stage.nodes[number].backend is not None)


def elsewhere(stage: QueueStage, number: int) -> bool:
    """Whether all other nodes know that this one leads nothing any more."""
    return all(
        stage.leader_of(topic, seen_by=node.node_id) not in (number, -1)
        for node in stage.live
        if node.backend is not None
        for topic in (TOPIC, QUEUES_TOPIC)
    )


@pytest.mark.parametrize("are_together", [True, False])
def test_a_queue_is_served_whichever_node_is_asked_and_over_every_failover(are_together: bool) -> None:
    stage = QueueStage(nodes=3)
    stage.ask(lambda done: stage.at(1).topics.auto_create(QUEUES_TOPIC, done))
    stage.until(lambda: all(stage.knows(stage.at(node), QUEUES_TOPIC) for node in (1, 2, 3)))
    coordinator = stage.leader_of(QUEUES_TOPIC)
    leader = coordinator if are_together else coordinator % 3 + 1
    topic_id = stage.create(replicas=(leader, leader % 3 + 1, (leader + 1) % 3 + 1))
    consumers = [QueueConsumer(stage, topic_id, node=node, name=f"c{node}") for node in (1, 2, 3)]
    stage.produce("a", "b", "c", "d")

    received = [consumer.receive(1, lease_ms=300_000) for consumer in consumers]
    assert [values(each) for each in received] == [["a"], ["b"], ["c"]]
    assert consumers[1].settle(received[0]) == [None]

    for number in dict.fromkeys((leader, coordinator)):
        kill(stage, number)
        stage.until(lambda number=number: elsewhere(stage, number))  # type: ignore[misc]
        # What is leased stays leased, and what is finished stays finished.
        described = consumers[number % 3].describe()
        assert (described.leased, described.ready, described.finished_below) == (2, 1, 1)
        start(stage, number)

    rest = consumers[0].receive(wait_ms=10_000)
    assert values(rest) == ["d"]
    assert consumers[0].settle(received[1]) == [None]
    assert consumers[2].settle([*received[0], *received[2], *rest]) == [STALE, None, None]
    assert consumers[1].describe().finished_below == 4


def test_whoever_waits_at_another_node_is_woken_when_a_lease_is_given_back() -> None:
    stage = QueueStage(nodes=3)
    topic_id = stage.create(replicas=(1,))
    first, second = (QueueConsumer(stage, topic_id, node=node, name=f"c{node}") for node in (2, 3))
    stage.produce("a")
    received = first.receive()
    waiting: list[Reply] = []
    second.request(waiting, wait_ms=20_000)
    stage.pass_ms(1_500)
    assert waiting == []

    assert first.settle(received, ReleaseRecords, delay_ms=0) == [None]
    stage.pass_ms(200)

    (reply,) = waiting
    assert isinstance(reply, ReceivedRecords)
    assert [(each.attempt, *values([each])) for each in reply.records] == [(2, "a")]
