"""Consumers that wait for several queues at once, through a node that leads none or only some of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.broker.queues.delayed_receive import GroupReceiveRequest
from penstock.broker.queues.peers import ReceivedRecords
from penstock.broker.queues.queue_admin import PeekedMessages, QueuesDescribed
from penstock.core.model import ApiError, PartitionIndex
from penstock.core.queues import QueueId, QueueOk
from tests.unit.broker.queues.queue_stage import GROUP, QueueStage, values

TOPICS = ("first", "second", "third")


class ClusterConsumer:
    """Three nodes, each of which leads one topic, and a consumer of all of them at the first node."""

    def __init__(self) -> None:
        self.stage = QueueStage(nodes=3)
        ids = [self.stage.create(name, (node,)) for node, name in enumerate(TOPICS, 1)]
        self.queues = tuple(QueueId(GROUP, topic_id, PartitionIndex(0)) for topic_id in ids)

    def receive(self, replies: list[Any], **fields: Any) -> Callable[[], None]:
        known = {"records_max": 10, "consumer": "c", "queues": self.queues, **fields}
        return self.stage.at(1).queues.receive_any(
            GroupReceiveRequest(**known), lambda _, reply: replies.append(reply)
        )

    def wait(self, **fields: Any) -> tuple[list[Any], Callable[[], None]]:
        replies: list[Any] = []
        cancel = self.receive(replies, wait_ms=60_000, **fields)
        self.stage.pass_ms(3_000)
        assert replies == []
        return replies, cancel

    def leased(self) -> int:
        found: QueuesDescribed = self.stage.ask(partial(self.stage.at(2).queue_admin.describe, (), ()))
        assert found.error is None, found.error
        return sum(each.leased for each in found.queues)


@pytest.fixture
def cluster() -> ClusterConsumer:
    return ClusterConsumer()


def received(replies: list[Any]) -> list[str]:
    (reply,) = replies
    assert isinstance(reply, ReceivedRecords), reply
    return values(list(reply.records))


@pytest.mark.parametrize("topic", TOPICS)
def test_whoever_waits_for_queues_of_several_nodes_gets_the_first_record(
    cluster: ClusterConsumer, topic: str
) -> None:
    replies, _ = cluster.wait()

    cluster.stage.produce("a", topic=topic)
    cluster.stage.pass_ms(500)

    assert received(replies) == ["a"]


def test_one_consumer_gets_records_of_one_queue_though_several_have_some(cluster: ClusterConsumer) -> None:
    replies, _ = cluster.wait(records_max=1)

    for topic in TOPICS:
        cluster.stage.produce("a", topic=topic)
    cluster.stage.pass_ms(3_000)

    assert received(replies) == ["a"]
    assert cluster.leased() == 1


@pytest.mark.parametrize("gone", [0, 1])
def test_what_a_consumer_that_has_gone_was_told_is_told_the_next_one(
    cluster: ClusterConsumer, gone: int
) -> None:
    waiting = [cluster.wait(), cluster.wait()]
    waiting[gone][1]()

    cluster.stage.produce("a", topic=TOPICS[2])
    cluster.stage.pass_ms(300)

    assert received(waiting[1 - gone][0]) == ["a"]


def test_nothing_is_leased_to_a_consumer_that_has_gone(cluster: ClusterConsumer) -> None:
    replies, cancel = cluster.wait()
    cancel()

    for topic in TOPICS:
        cluster.stage.produce("a", topic=topic)
    cluster.stage.pass_ms(3_000)

    assert (replies, cluster.leased()) == ([], 0)


def test_queues_are_described_peeked_into_and_reset_from_any_node(cluster: ClusterConsumer) -> None:
    stage = cluster.stage
    _, cancel = cluster.wait()
    cancel()
    stage.produce("a", "b", topic=TOPICS[2])
    stage.pass_ms(500)
    third = cluster.queues[2]

    for node in (1, 2, 3):
        admin = stage.at(node).queue_admin
        described = stage.ask(partial(admin.describe, (GROUP,), ()))
        peeked = stage.ask(partial(admin.peek, third, 0, 10, 1 << 20))
        reset = stage.ask(partial(admin.reset, third, 1))
        again = stage.ask(partial(admin.reset, third, -2))
        refused = stage.ask(partial(admin.reset, third, 9))

        assert [each.stored.queue for each in described.queues] == sorted(cluster.queues)
        assert isinstance(peeked, PeekedMessages)
        assert [each.record.value for each in peeked.messages] == [b"a", b"b"]
        assert isinstance(reset, QueueOk)
        assert isinstance(again, QueueOk)
        assert isinstance(refused, ApiError)
