"""Log mode: Subscribe from a position, and Commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from penstock.v1.penstock_pb2 import (
    MODE_LOG,
    START_EARLIEST,
    CommitRequest,
    OutgoingMessage,
    Position,
    PublishBatchRequest,
    PublishRequest,
    SubscribeRequest,
)
from tests.support.recorded_events import recorded_events


def publish(penstock: Any, topic: str, count: int, partition: int = 0) -> None:
    messages = [OutgoingMessage(value=b"%d" % number, partition=partition) for number in range(count)]
    penstock.PublishBatch(PublishBatchRequest(topic=topic, messages=messages))


@contextmanager
def subscription(penstock: Any, topic: str, **choices: Any) -> Iterator[Any]:
    stream = penstock.Subscribe(SubscribeRequest(topics=[topic], mode=MODE_LOG, **choices), timeout=60)
    try:
        yield stream
    finally:
        stream.cancel()


def test_the_whole_log_is_read_in_the_order_of_its_partitions(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 20, partition=0)
    publish(penstock, topic, 20, partition=1)

    with subscription(penstock, topic, start=START_EARLIEST) as stream:
        read = [next(stream) for _ in range(40)]

    for partition in (0, 1):
        offsets = [message.offset for message in read if message.partition == partition]
        assert offsets == list(range(20))
    assert {(message.receipt, message.attempt) for message in read} == {("", 0)}


def test_a_stream_starts_at_the_end_unless_it_is_told_otherwise(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 3)

    with subscription(penstock, topic) as stream:
        # With these the stream has its start.
        stream.initial_metadata()
        penstock.Publish(PublishRequest(topic=topic, value=b"new", partition=0))
        message = next(stream)

    assert (message.offset, message.value) == (3, b"new")


def test_a_stream_starts_at_a_position(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 10)

    positions = [Position(topic=topic, partition=0, offset=7)]
    with subscription(penstock, topic, positions=positions, batch_max=100) as stream:
        element = next(stream)

    assert [message.offset for message in element.messages] == [7, 8, 9]


def test_a_group_goes_on_where_it_committed(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 5)
    penstock.Commit(
        CommitRequest(group="log-readers", offsets=[Position(topic=topic, partition=0, offset=3)])
    )

    with subscription(penstock, topic, group="log-readers", start=START_EARLIEST) as stream:
        message = next(stream)

    assert message.offset == 3


def test_a_group_whose_offset_the_log_does_not_have_starts_anew(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 5)
    committed = [Position(topic=topic, partition=0, offset=1_000)]
    penstock.Commit(CommitRequest(group=f"lost-{topic}", offsets=committed))

    with subscription(penstock, topic, group=f"lost-{topic}", start=START_EARLIEST) as stream:
        message = next(stream)

    assert message.offset == 0


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (
            {"group": "", "offsets": [Position(topic="t", partition=0, offset=1)]},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        ({"offsets": []}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"offsets": [Position(topic="t", partition=0, offset=-1)]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"offsets": [Position(partition=0, offset=1)]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"offsets": [Position(topic="nowhere", partition=0, offset=1)]}, grpc.StatusCode.NOT_FOUND),
    ],
    ids=["no group", "no offsets", "negative", "unnamed topic", "no topic"],
)
def test_a_commit_that_cannot_be_gets_one_error(penstock: Any, fields: dict[str, Any], status: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.Commit(CommitRequest(**{"group": "g"} | fields))

    assert refused.value.code() == status


@pytest.mark.parametrize(
    ("position", "status"),
    [
        (("other", 0, 0), grpc.StatusCode.INVALID_ARGUMENT),
        (("", 9, 0), grpc.StatusCode.INVALID_ARGUMENT),
        (("", 0, 1_000), grpc.StatusCode.OUT_OF_RANGE),
    ],
    ids=["another topic", "no such partition", "beyond the end"],
)
def test_a_position_that_is_none_gets_one_error(
    penstock: Any, topic: str, position: tuple[str, int, int], status: Any
) -> None:
    name, partition, offset = position
    positions = [Position(topic=name or topic, partition=partition, offset=offset)]

    with (
        subscription(penstock, topic, positions=positions) as stream,
        pytest.raises(grpc.RpcError) as refused,
    ):
        next(stream)

    assert refused.value.code() == status


def test_a_client_that_leaves_in_the_middle_is_no_failure(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 2_000)

    with recorded_events() as events:
        for _ in range(5):
            with subscription(penstock, topic, start=START_EARLIEST) as stream:
                next(stream)
        with subscription(penstock, topic, start=START_EARLIEST) as stream:
            assert [next(stream).offset for _ in range(2_000)] == list(range(2_000))

    assert events.named("grpc.call_failed") == []
