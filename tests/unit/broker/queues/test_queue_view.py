"""Records of a topic as a queue, on one node: received, settled, delivered again."""

import pytest

from penstock.broker.queues.leader_queue import CHECK_MS
from penstock.broker.queues.peers import ReceivedRecords
from penstock.core.model import ErrorKind
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
