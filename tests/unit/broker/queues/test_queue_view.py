"""Records of a topic as a queue, on one node: received, settled, delivered again."""

from typing import Any

import pytest

from penstock.broker.queues.delayed_receive import GroupReceiveRequest
from penstock.broker.queues.leader_queue import CHECK_MS
from penstock.broker.queues.peers import ReceivedRecords
from penstock.core.model import ApiError, ErrorKind
from penstock.core.queues import ReleaseRecords, RenewLeases
from tests.unit.broker.queues.queue_stage import (
    GROUP,
    TOPIC,
    QueueConsumer,
    QueueStage,
    Reply,
    consumer_of,
    values,
)

STALE = ErrorKind.INVALID_RECORD_STATE


@pytest.fixture
def consumer() -> QueueConsumer:
    return consumer_of(QueueStage())


def test_records_are_received_once_and_finished_by_their_receipts(consumer: QueueConsumer) -> None:
    consumer.stage.produce("a", "b", "c")

    first = consumer.receive(2)
    rest = consumer.receive()
    results = consumer.settle(first)

    assert (values(first), values(rest)) == (["a", "b"], ["c"])
    assert [each.attempt for each in first] == [1, 1]
    assert results == [None, None]
    assert consumer.settle(first) == [STALE, STALE]
    described = consumer.describe()
    assert (described.finished_below, described.leased) == (2, 1)


def test_what_is_released_or_not_acknowledged_is_delivered_again(consumer: QueueConsumer) -> None:
    consumer.stage.produce("a", "b")
    received = consumer.receive(lease_ms=2_000)

    consumer.settle(received[:1], ReleaseRecords, delay_ms=0)
    again = consumer.receive()
    late = consumer.receive(wait_ms=10_000)

    assert [(each.attempt, *values([each])) for each in again] == [(2, "a")]
    assert [(each.attempt, *values([each])) for each in late] == [(2, "b")]
    assert consumer.settle(received) == [STALE, STALE]
    metrics = consumer.stage.nodes[1].services.queue_metrics
    assert metrics.lease_timeouts.of(GROUP, TOPIC).count == 1
    assert (metrics.leased.of().count, metrics.failed.of("released").count) == (4, 2)


def test_a_renewed_lease_lasts_in_full_again(consumer: QueueConsumer) -> None:
    consumer.stage.produce("a")
    received = consumer.receive(lease_ms=2_000)
    for _ in range(4):
        consumer.stage.pass_ms(1_500)
        assert consumer.settle(received, RenewLeases) == [None]

    assert consumer.receive() == []
    assert consumer.settle(received) == [None]


def test_consumers_that_wait_get_records_as_they_come_the_first_one_first(consumer: QueueConsumer) -> None:
    stage = consumer.stage
    first, second = list[Reply](), list[Reply]()
    consumer.request(first, 1, wait_ms=20_000)
    consumer.request(second, 1, wait_ms=20_000)
    stage.pass_ms(3_000)
    assert (first, second) == ([], [])

    stage.produce("a")
    stage.pass_ms(CHECK_MS // 2)
    assert (len(first), len(second)) == (1, 0)
    stage.produce("b")
    stage.pass_ms(CHECK_MS // 2)

    got = [values(list(reply.records)) for reply in (*first, *second) if isinstance(reply, ReceivedRecords)]
    assert got == [["a"], ["b"]]


def test_whoever_waits_in_vain_gets_nothing_when_its_time_is_up(consumer: QueueConsumer) -> None:
    assert consumer.receive(wait_ms=3_000) == []
    assert consumer.receive() == []


def test_whoever_does_not_wait_has_its_reply_at_once_also_behind_those_who_wait(
    consumer: QueueConsumer,
) -> None:
    assert consumer.receive() == []
    waiting, hurried = list[Reply](), list[Reply]()

    consumer.request(waiting, 1, wait_ms=20_000)
    consumer.request(hurried, 1)
    consumer.stage.pass_ms(100)

    assert len(hurried) == 1
    assert waiting == []


def test_leases_survive_a_restart_of_the_node(consumer: QueueConsumer) -> None:
    stage = consumer.stage
    stage.produce("a", "b")
    received = consumer.receive(1)
    stage.world.nodes["n1"].cut_power()
    stage.world.nodes["n1"].start()
    stage.until(lambda: stage.nodes[1].backend is not None)

    assert values(consumer.receive()) == ["b"]
    assert consumer.settle(received) == [None]


def test_large_records_are_received_one_at_a_time(consumer: QueueConsumer) -> None:
    consumer.stage.produce("x" * 60_000, "y" * 60_000)

    assert values(consumer.receive(bytes_max=100_000)) == ["x" * 60_000]
    assert values(consumer.receive(bytes_max=100_000)) == ["y" * 60_000]


def received(consumer: QueueConsumer, group_id: str, **fields: Any) -> ErrorKind | None:
    """What is wrong when a consumer of this group asks for records of the topic."""
    asked = QueueConsumer(consumer.stage, consumer.queue.topic_id)
    asked.queue = consumer.queue._replace(group_id=group_id)
    replies: list[Reply] = []
    asked.request(replies, **fields)
    consumer.stage.until(lambda: bool(replies), 90)
    return replies[0].kind if isinstance(replies[0], ApiError) else None


def test_queues_of_a_node_have_a_bound_and_groups_that_have_some_are_refused_last() -> None:
    stage = QueueStage()
    first, second, third = (QueueConsumer(stage, stage.create(name)) for name in ("a", "b", "c"))
    assert received(first, "old-1") is None
    service = stage.nodes[1].services._queues
    assert service is not None
    service._queue_bytes_max = 4 * sum([each.machine.held_bytes for each in service])

    found = [received(first, "old-2"), received(first, "new-1"), received(first, "new-1", wait_ms=5_000)]
    found += [received(second, "old-1"), received(third, "old-1"), received(second, "old-2")]
    found += [received(third, "old-2")]

    # Four queues, of which groups without any have two, and one group has two.
    full = ErrorKind.GROUP_FULL
    assert found == [None, full, full, None, full, None, full]
    assert sorted(each.group_id for each in stage.at().queues._led) == ["old-1", "old-1", "old-2", "old-2"]
    assert received(first, "old-1") is None


def test_whoever_waits_for_any_of_several_queues_hears_that_there_is_no_room_for_one(
    consumer: QueueConsumer,
) -> None:
    stage = consumer.stage
    other = stage.create("other")
    service = stage.nodes[1].services._queues
    assert service is not None
    assert consumer.receive() == []
    service._queue_bytes_max = 0
    queues = (consumer.queue, consumer.queue._replace(topic_id=other))
    request = GroupReceiveRequest(queues=queues, consumer="c", records_max=1, wait_ms=60_000)
    replies: list[Reply] = []

    stage.at().queues.receive_any(request, lambda _, reply: replies.append(reply))
    stage.pass_ms(1_000)

    assert [reply.kind for reply in replies if isinstance(reply, ApiError)] == [ErrorKind.GROUP_FULL]
    stage.produce("a")
    assert values(consumer.receive()) == ["a"]
