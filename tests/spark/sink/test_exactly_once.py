"""Open transactions of tasks, and the one commit of their driver; without Spark."""

from collections import Counter

import pytest

from penstock.client import ConsumerOptions, Endpoint, TopicConsumer
from penstock.spark.errors import PipelineError
from penstock.spark.sink import (
    BatchId,
    DeliveryReceipt,
    ExactlyOnceDelivery,
    TaskId,
    delivery_for,
    sink_options,
)
from penstock.spark.sink.delivery import TopicDelivery

ROWS = 10


@pytest.fixture
def delivery(servers: str) -> TopicDelivery:
    return delivery_for(sink_options({"kafka.bootstrap.servers": servers}))


@pytest.fixture
def query(topic_name: str) -> str:
    return f"query-{topic_name}"


def write(delivery: TopicDelivery, topic: str, query: str, task: int, value: bytes) -> DeliveryReceipt:
    writing = delivery.open(TaskId(query, task, 0))
    writing.send(topic, [value] * ROWS)
    return writing.finish()


def committed(servers: str, topic: str) -> Counter[bytes | None]:
    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions(committed_only=True)) as reader:
        return Counter(read.value for batch in reader.batches() for read in batch)


def test_it_is_the_default_where_the_broker_has_batch_commit(delivery: TopicDelivery) -> None:
    assert isinstance(delivery, ExactlyOnceDelivery)


def test_nothing_counts_before_the_driver_commits_and_then_all_of_it(
    delivery: TopicDelivery, servers: str, topic: str, query: str
) -> None:
    receipts = [write(delivery, topic, query, task, b"%d" % task) for task in range(3)]
    idle = delivery.open(TaskId(query, 3, 0)).finish()

    assert committed(servers, topic) == {}

    delivery.commit([*receipts, idle], BatchId(query, 0))
    assert committed(servers, topic) == {b"0": ROWS, b"1": ROWS, b"2": ROWS}


def test_a_task_that_is_tried_again_replaces_its_first_try(
    delivery: TopicDelivery, servers: str, topic: str, query: str
) -> None:
    first = write(delivery, topic, query, 0, b"first")
    second = write(delivery, topic, query, 0, b"second")

    with pytest.raises(PipelineError, match=r"batch 0 of sink .* was refused, and nothing of it counts"):
        delivery.commit([first], BatchId(query, 0))
    delivery.commit([second], BatchId(query, 0))

    assert committed(servers, topic) == {b"second": ROWS}


def test_a_batch_that_was_committed_is_aborted_when_it_is_written_again(
    delivery: TopicDelivery, servers: str, topic: str, query: str
) -> None:
    delivery.commit([write(delivery, topic, query, 0, b"once")], BatchId(query, 0))

    delivery.commit([write(delivery, topic, query, task, b"again") for task in range(2)], BatchId(query, 0))
    delivery.commit([write(delivery, topic, query, 0, b"next")], BatchId(query, 1))

    # The next batch would not be seen while the repeated one were open.
    assert committed(servers, topic) == {b"once": ROWS, b"next": ROWS}


def test_an_aborted_batch_leaves_nothing_behind_and_a_committed_one_stays(
    delivery: TopicDelivery, servers: str, topic: str, query: str
) -> None:
    given_up = write(delivery, topic, query, 0, b"given up")
    delivery.abort([given_up], BatchId(query, 0))
    kept = write(delivery, topic, query, 1, b"kept")
    delivery.commit([kept], BatchId(query, 0))

    delivery.abort([kept], BatchId(query, 0))

    assert committed(servers, topic) == {b"kept": ROWS}


def test_what_a_failed_task_wrote_is_aborted_at_once(
    delivery: TopicDelivery, servers: str, topic: str, query: str
) -> None:
    failing = delivery.open(TaskId(query, 0, 0))
    failing.send(topic, [b"lost"] * ROWS)
    failing.discard()
    delivery.commit([write(delivery, topic, query, 1, b"kept")], BatchId(query, 0))

    assert committed(servers, topic) == {b"kept": ROWS}
