"""Publish, PublishBatch, PublishStream and GetMessage."""

import queue
from typing import Any

import grpc
import pytest

from penstock.v1.penstock_pb2 import (
    ACKS_NONE,
    START_EARLIEST,
    CancelDelaysRequest,
    GetMessageRequest,
    Header,
    OutgoingMessage,
    PublishBatchRequest,
    PublishRequest,
    SubscribeRequest,
)


def test_a_message_is_published_and_found_by_its_id(penstock: Any, topic: str) -> None:
    headers = [Header(key="trace", value=b"1"), Header(key="none")]

    sent = penstock.Publish(PublishRequest(topic=topic, key=b"k", value=b"v", headers=headers, partition=1))
    found = penstock.GetMessage(GetMessageRequest(id=sent.id))

    assert (sent.partition, sent.offset, sent.id) == (1, 0, f"{topic}/1/0")
    assert (found.topic, found.partition, found.offset) == (topic, 1, 0)
    assert (found.key, found.value, list(found.headers)) == (b"k", b"v", headers)
    assert found.timestamp_ms == sent.timestamp_ms > 0


def test_no_value_is_not_an_empty_value(penstock: Any, topic: str) -> None:
    tombstone = penstock.Publish(PublishRequest(topic=topic, key=b"k", partition=0))
    empty = penstock.Publish(PublishRequest(topic=topic, key=b"k", value=b"", partition=0))

    assert not penstock.GetMessage(GetMessageRequest(id=tombstone.id)).HasField("value")
    assert penstock.GetMessage(GetMessageRequest(id=empty.id)).HasField("value")


def test_without_acks_nobody_knows_the_offset(penstock: Any, topic: str) -> None:
    sent = penstock.Publish(PublishRequest(topic=topic, value=b"v", acks=ACKS_NONE))

    assert (sent.offset, sent.id) == (-1, "")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"topic": "missing-one"}, grpc.StatusCode.NOT_FOUND, "missing-one"),
        ({"topic": ""}, grpc.StatusCode.INVALID_ARGUMENT, "topic: is missing"),
        ({"partition": 9}, grpc.StatusCode.NOT_FOUND, "9"),
        ({"partition": -1}, grpc.StatusCode.INVALID_ARGUMENT, "partition: -1 is negative"),
        ({"priority": 10}, grpc.StatusCode.INVALID_ARGUMENT, "priority: 10 is not between 0 and 9"),
        ({"ttl_ms": -1}, grpc.StatusCode.INVALID_ARGUMENT, "ttl_ms: -1 is negative"),
        ({"delay_ms": -1}, grpc.StatusCode.INVALID_ARGUMENT, "delay_ms: -1 is negative"),
        (
            {"delay_ms": 1, "deliver_at_ms": 1},
            grpc.StatusCode.INVALID_ARGUMENT,
            "deliver_at_ms is given as well",
        ),
        ({"delay_ms": (1 << 63) - 1}, grpc.StatusCode.INVALID_ARGUMENT, "delay_ms: "),
        ({"delay_ms": 10**14}, grpc.StatusCode.INVALID_ARGUMENT, "delay_ms: "),
        ({"deliver_at_ms": 10**16}, grpc.StatusCode.INVALID_ARGUMENT, "deliver_at_ms: "),
        ({"ttl_ms": (1 << 63) - 1}, grpc.StatusCode.INVALID_ARGUMENT, "ttl_ms: "),
        ({"acks": 9}, grpc.StatusCode.INVALID_ARGUMENT, "acks: 9"),
        ({"messages": [OutgoingMessage()]}, grpc.StatusCode.INVALID_ARGUMENT, "PublishBatch"),
    ],
    ids=str,
)
def test_a_message_that_cannot_be_published_gets_one_error(
    penstock: Any, topic: str, fields: dict[str, Any], status: Any, words: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.Publish(PublishRequest(**{"topic": topic, "value": b"v"} | fields))

    assert refused.value.code() == status
    assert words in refused.value.details()


def test_a_delayed_message_is_published_when_due_unless_it_is_cancelled(penstock: Any, topic: str) -> None:
    messages = [
        OutgoingMessage(value=b"now", partition=0),
        OutgoingMessage(value=b"never", partition=0, delay_ms=600_000),
        OutgoingMessage(value=b"soon", partition=0, deliver_at_ms=1),
    ]

    now, never, soon = penstock.PublishBatch(PublishBatchRequest(topic=topic, messages=messages)).results
    cancelled = penstock.CancelDelays(CancelDelaysRequest(delay_ids=[never.delay_id])).cancelled
    read = penstock.Subscribe(SubscribeRequest(topics=[topic], start=START_EARLIEST), timeout=60)
    values = [next(read).value for _ in range(2)]
    read.cancel()

    assert (now.offset, never.offset, soon.offset) == (0, -1, -1)
    assert never.delay_id != soon.delay_id
    assert list(cancelled) == [True]
    assert values == [b"now", b"soon"]
    assert list(penstock.CancelDelays(CancelDelaysRequest(delay_ids=[never.delay_id])).cancelled) == [False]


def test_one_bad_message_does_not_hold_up_its_batch(penstock: Any, topic: str) -> None:
    messages = [
        OutgoingMessage(value=b"a", partition=0),
        OutgoingMessage(value=b"b", priority=11),
        OutgoingMessage(value=b"c", partition=0, priority=9, ttl_ms=1000),
    ]

    results = penstock.PublishBatch(PublishBatchRequest(topic=topic, messages=messages)).results

    assert [result.offset for result in results] == [0, -1, 1]
    assert [result.error.status for result in results] == [0, grpc.StatusCode.INVALID_ARGUMENT.value[0], 0]
    kept = penstock.GetMessage(GetMessageRequest(id=f"{topic}/0/1"))
    assert [(header.key, header.value) for header in kept.headers] == [
        ("penstock-priority", b"9"),
        ("penstock-ttl-ms", b"1000"),
    ]


def test_a_delay_that_cannot_be_does_not_hold_up_the_others(penstock: Any, topic: str) -> None:
    messages = [OutgoingMessage(delay_ms=(1 << 63) - 1), OutgoingMessage(value=b"v", delay_ms=3_600_000)]

    bad, good = penstock.PublishBatch(PublishBatchRequest(topic=topic, messages=messages)).results

    assert (bad.error.code, bad.delay_id) == ("INVALID_REQUEST", "")
    assert good.delay_id


def test_a_batch_of_nothing_is_refused(penstock: Any, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.PublishBatch(PublishBatchRequest(topic=topic))

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "messages: there are none" in refused.value.details()


def test_a_message_beside_many_is_not_dropped_in_silence(penstock: Any, topic: str) -> None:
    both = PublishRequest(topic=topic, value=b"one", messages=[OutgoingMessage(value=b"many")])

    refused, published = penstock.PublishStream(iter([both, PublishRequest(topic=topic, value=b"next")]))

    assert ["messages: " in one.error.message for one in refused.results] == [True]
    assert published.offset == 0


def test_a_batch_has_a_limit(penstock: Any, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.PublishBatch(PublishBatchRequest(topic=topic, messages=[OutgoingMessage()] * 2_001))

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "2001" in refused.value.details()


def test_a_stream_has_its_responses_in_the_order_of_its_requests(penstock: Any, topic: str) -> None:
    # More than the window has room for: 40 requests of 16 KB, in a window of 64 KB.
    requests = [
        PublishRequest(
            topic=topic, messages=[OutgoingMessage(value=b"%d" % number + b"." * 1_600, partition=0)] * 10
        )
        for number in range(40)
    ]

    responses = list(penstock.PublishStream(iter(requests)))

    offsets = [result.offset for response in responses for result in response.results]
    assert offsets == list(range(400))
    value = penstock.GetMessage(GetMessageRequest(id=f"{topic}/0/399")).value
    assert value.startswith(b"39.")


def test_a_stream_goes_on_after_an_error(penstock: Any, topic: str) -> None:
    requests = [
        PublishRequest(topic=topic, value=b"a", partition=0),
        PublishRequest(topic="missing-two", value=b"b"),
        PublishRequest(topic=topic, messages=[OutgoingMessage(partition=7), OutgoingMessage(partition=0)]),
    ]

    first, second, third = penstock.PublishStream(iter(requests))

    assert (first.id, first.HasField("error")) == (f"{topic}/0/0", False)
    assert (second.error.code, second.error.status) == ("UNKNOWN_TOPIC_OR_PARTITION", 5)
    assert [result.error.code for result in third.results] == ["UNKNOWN_TOPIC_OR_PARTITION", ""]
    assert third.results[1].offset == 1


def test_a_stream_responds_while_it_is_open(penstock: Any, topic: str) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    stream = penstock.PublishStream(iter(requests.get, None), timeout=30)

    requests.put(PublishRequest(topic=topic, value=b"a", partition=0))
    first = next(stream)
    requests.put(PublishRequest(topic=topic, value=b"b", partition=0))
    second = next(stream)
    requests.put(None)

    assert (first.offset, second.offset, list(stream)) == (0, 1, [])


LONG_ID = "a/0/" + "1" * 5_000


@pytest.mark.parametrize(
    "wrong", ["", "orders", "orders/x/0", "orders/0/-1", "/0/0", "a/0/0/0", "a/\u0663/0", LONG_ID]
)
def test_an_id_that_is_none_is_refused(penstock: Any, wrong: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.GetMessage(GetMessageRequest(id=wrong))

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_message_that_is_not_there_is_not_found(penstock: Any, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.GetMessage(GetMessageRequest(id=f"{topic}/0/5"))

    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_an_oversized_request_is_refused_and_the_connection_lives(penstock: Any, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.Publish(PublishRequest(topic=topic, value=b"." * (2 << 20)))

    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert penstock.Publish(PublishRequest(topic=topic, value=b"small")).offset == 0
