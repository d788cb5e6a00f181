"""Queue mode: Subscribe, Poll, Ack, Nack and Renew."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from penstock.v1.penstock_pb2 import (
    AckRequest,
    NackRequest,
    OutgoingMessage,
    PollRequest,
    PublishBatchRequest,
    ReceiptErrors,
    RenewRequest,
    SubscribeRequest,
)
from tests.support.clusters import until


def publish(penstock: Any, topic: str, count: int, partition: int = 0) -> None:
    messages = [OutgoingMessage(value=b"%d" % number, partition=partition) for number in range(count)]
    results = penstock.PublishBatch(PublishBatchRequest(topic=topic, messages=messages)).results
    assert not [result.error for result in results if result.HasField("error")]


def poll(penstock: Any, topic: str, **choices: Any) -> list[Any]:
    asked: dict[str, Any] = {
        "group": "g",
        "topics": [topic],
        "consumer": "poller",
        "wait_ms": 10_000,
    } | choices
    return list(penstock.Poll(PollRequest(**asked)).messages)


@contextmanager
def subscription(penstock: Any, topic: str, **choices: Any) -> Iterator[Any]:
    stream = penstock.Subscribe(SubscribeRequest(topics=[topic], group="g", **choices), timeout=60)
    try:
        yield stream
    finally:
        stream.cancel()


def test_messages_are_delivered_with_a_receipt_and_acknowledged(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 3)

    with subscription(penstock, topic, consumer="anna") as stream:
        received = [next(stream) for _ in range(3)]
        consumer = dict(stream.initial_metadata())["penstock-consumer"]
        penstock.Ack(AckRequest(group="g", receipts=[message.receipt for message in received]))

    assert consumer == "anna"
    assert [(message.topic, message.offset, message.value) for message in received] == [
        (topic, 0, b"0"), (topic, 1, b"1"), (topic, 2, b"2")
    ]  # fmt: skip
    assert {message.attempt for message in received} == {1}
    assert poll(penstock, topic, wait_ms=0) == []


def test_a_client_that_asks_for_batches_gets_batches(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 10)

    with subscription(penstock, topic, batch_max=4) as stream:
        sizes: list[int] = []
        while sum(sizes) < 10:
            element = next(stream)
            assert (element.topic, element.receipt) == ("", "")
            sizes.append(len(element.messages))

    assert max(sizes) <= 4


def test_no_more_is_delivered_than_may_be_in_flight(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 5)

    with subscription(penstock, topic, max_in_flight=2) as stream:
        first, second = next(stream), next(stream)
        # Those that the stream does not take are there for others.
        others = poll(penstock, topic, consumer="another")
        penstock.Ack(
            AckRequest(group="g", receipts=[message.receipt for message in (first, second, *others[:2])])
        )
        penstock.Nack(NackRequest(group="g", receipts=[others[2].receipt], delay_ms=0))
        third = next(stream)

    assert [message.offset for message in (first, second)] == [0, 1]
    assert [message.offset for message in others] == [2, 3, 4]
    assert (third.offset, third.attempt) == (4, 2)


def test_what_a_stream_had_is_available_when_it_ends(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 4)

    with subscription(penstock, topic, lease_ms=600_000) as stream:
        kept = next(stream)
        penstock.Ack(AckRequest(group="g", receipts=[kept.receipt]))
        next(stream)
    again: list[Any] = []
    while len(again) < 3:
        again += poll(penstock, topic, consumer="another")

    attempts = {message.offset: message.attempt for message in again}
    assert sorted(attempts) == [1, 2, 3]
    # The client had this one; whether it had the others is not known.
    assert attempts[1] == 2


def test_a_message_that_ends_every_client_is_dead_lettered(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 1)

    attempts = []
    for _ in range(4):
        with subscription(penstock, topic, lease_ms=600_000) as stream:
            attempts.append(next(stream).attempt)

    assert attempts == [1, 2, 3, 4]
    until(
        lambda: f"{topic}.dlq" in {each.name for each in penstock.ListTopics(Empty()).topics},
        "there are dead letters",
    )
    dead = poll(penstock, f"{topic}.dlq", group="undertaker")
    assert [message.value for message in dead] == [b"0"]


def test_a_message_that_is_not_wanted_now_comes_again_and_a_rejected_one_does_not(
    penstock: Any, topic: str
) -> None:
    publish(penstock, topic, 2)
    first, second = poll(penstock, topic)

    penstock.Nack(NackRequest(group="g", receipts=[first.receipt], delay_ms=0))
    penstock.Nack(NackRequest(group="g", receipts=[second.receipt], reject=True, reason="broken"))
    (again,) = poll(penstock, topic)

    assert (again.offset, again.attempt) == (0, 2)


def test_a_renewed_lease_is_longer(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 1)
    (message,) = poll(penstock, topic, lease_ms=1_000)

    penstock.Renew(RenewRequest(group="g", receipts=[message.receipt], lease_ms=600_000))

    assert poll(penstock, topic, wait_ms=2_000) == []
    penstock.Ack(AckRequest(group="g", receipts=[message.receipt]))


@pytest.mark.parametrize("call", ["Ack", "Nack", "Renew"])
@pytest.mark.parametrize(
    ("receipts", "status"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT),
        (["x"] * 10_001, grpc.StatusCode.INVALID_ARGUMENT),
        (["nonsense"], grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["none", "too many", "nonsense"],
)
def test_wrong_receipts_get_one_error(penstock: Any, call: str, receipts: list[str], status: Any) -> None:
    request = {"Ack": AckRequest, "Nack": NackRequest, "Renew": RenewRequest}[call]

    with pytest.raises(grpc.RpcError) as refused:
        getattr(penstock, call)(request(group="g", receipts=receipts))

    assert refused.value.code() == status
    assert "receipts" in refused.value.details()


@pytest.mark.parametrize(
    ("call", "request_", "words"),
    [
        ("Poll", PollRequest(topics=["t"]), "group: is missing"),
        ("Poll", PollRequest(group="g"), "topics: there are none"),
        ("Poll", PollRequest(group="g", topics=["t"], lease_ms=-1), "lease_ms: "),
        ("Poll", PollRequest(group="g", topics=["t"], lease_ms=0), "lease_ms: "),
        ("Poll", PollRequest(group="g", topics=["t"], lease_ms=(1 << 31) - 1), "lease_ms: "),
        ("Ack", AckRequest(receipts=["r"]), "group: is missing"),
        ("Nack", NackRequest(receipts=["r"]), "group: is missing"),
        ("Nack", NackRequest(group="g", receipts=["r"], delay_ms=-1), "delay_ms: "),
        ("Nack", NackRequest(group="g", receipts=["r"], delay_ms=(1 << 31) - 1), "delay_ms: "),
        ("Renew", RenewRequest(receipts=["r"]), "group: is missing"),
        ("Renew", RenewRequest(group="g", receipts=["r"], lease_ms=-1), "lease_ms: "),
        ("Renew", RenewRequest(group="g", receipts=["r"], lease_ms=0), "lease_ms: "),
    ],
    ids=str,
)
def test_a_field_that_cannot_be_is_named(penstock: Any, call: str, request_: Any, words: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        getattr(penstock, call)(request_)

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert words in refused.value.details()


def test_good_receipts_count_beside_bad_ones(penstock: Any, topic: str) -> None:
    publish(penstock, topic, 2)
    first, second = poll(penstock, topic)
    penstock.Ack(AckRequest(group="g", receipts=[first.receipt]))

    with pytest.raises(grpc.RpcError) as refused:
        penstock.Ack(AckRequest(group="g", receipts=[first.receipt, second.receipt, "x"]))

    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    metadata = dict(refused.value.trailing_metadata())
    errors = ReceiptErrors.FromString(metadata["penstock-receipt-errors-bin"])
    assert list(errors.indexes) == [0, 2]
    assert poll(penstock, topic, wait_ms=0) == []


def test_a_deadline_ends_a_stream_and_a_poll(penstock: Any, topic: str) -> None:
    stream = penstock.Subscribe(SubscribeRequest(topics=[topic], group="g"), timeout=0.5)

    with pytest.raises(grpc.RpcError) as ended:
        next(stream)

    assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert penstock.Poll(PollRequest(group="g", topics=[topic], wait_ms=50_000), timeout=2).messages == []


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"topics": []}, grpc.StatusCode.INVALID_ARGUMENT, "topics: there are none"),
        ({"topics": ["not-there"]}, grpc.StatusCode.NOT_FOUND, "not-there"),
        ({"mode": 1, "group": ""}, grpc.StatusCode.INVALID_ARGUMENT, "group: is missing"),
        ({"mode": 7}, grpc.StatusCode.INVALID_ARGUMENT, "mode: 7"),
        ({"max_in_flight": -1}, grpc.StatusCode.INVALID_ARGUMENT, "max_in_flight: -1"),
        ({"max_in_flight": 1 << 30}, grpc.StatusCode.INVALID_ARGUMENT, "max_in_flight: 1073741824"),
        ({"batch_max": -5}, grpc.StatusCode.INVALID_ARGUMENT, "batch_max: -5"),
        ({"lease_ms": 0}, grpc.StatusCode.INVALID_ARGUMENT, "lease_ms"),
        ({"lease_ms": -(1 << 31)}, grpc.StatusCode.INVALID_ARGUMENT, "lease_ms"),
        ({"lease_ms": (1 << 31) - 1}, grpc.StatusCode.INVALID_ARGUMENT, "lease_ms"),
        ({"start": 9}, grpc.StatusCode.INVALID_ARGUMENT, "start: 9"),
        ({"group": "g" * 8_001}, grpc.StatusCode.INVALID_ARGUMENT, "group: "),
    ],
    ids=str,
)
def test_a_subscription_that_cannot_be_gets_one_error(
    penstock: Any, topic: str, fields: dict[str, Any], status: Any, words: str
) -> None:
    stream = penstock.Subscribe(SubscribeRequest(**{"topics": [topic], "group": "g"} | fields), timeout=10)

    with pytest.raises(grpc.RpcError) as refused:
        next(stream)

    assert refused.value.code() == status
    assert words in refused.value.details()
