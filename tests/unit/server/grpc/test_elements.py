"""Requests with too many elements are refused before they are decoded."""

from typing import Any

import pytest

from penstock.server.grpc.elements import CHECKED_BYTES, INNER_MAX, ElementLimits
from penstock.server.grpc.statuses import Malformed, decoder
from penstock.v1 import penstock_pb2 as proto

MAX = 10_000
LARGE = bytes(CHECKED_BYTES)


def problem(request: Any) -> str | None:
    return ElementLimits(request.DESCRIPTOR, MAX).problem_with(request.SerializeToString())


@pytest.mark.parametrize(
    ("message", "octets", "field"),
    [
        (proto.PublishBatchRequest, b"\x1a\x00", "messages"),
        (proto.PublishRequest, b"\x2a\x00", "headers"),
        (proto.PublishRequest, b"\x7a\x00", "messages"),
        (proto.AckRequest, b"\x12\x00", "receipts"),
        (proto.CreateTopicRequest, b"\x22\x00", "config"),
        # A group, which no message here has.
        (proto.PublishBatchRequest, b"\x0b\x0c\x1a\x00", "messages"),
    ],
)
def test_empty_elements_are_refused_and_not_made(message: Any, octets: bytes, field: str) -> None:
    made = decoder(message, MAX)(octets * (CHECKED_BYTES // 2))

    assert made == Malformed(f"{field}: there are more than {MAX}")


def test_elements_of_elements_count_together() -> None:
    headers = b"\x1a\x00" * 1_000
    element = b"\x1a" + b"\xd0\x0f" + headers
    request = element * (INNER_MAX // 1_000)
    limits = ElementLimits(proto.PublishBatchRequest.DESCRIPTOR, MAX)

    assert limits.problem_with(request) is None
    assert limits.problem_with(request + element) == f"messages: they have more than {INNER_MAX} elements"


@pytest.mark.parametrize(
    "request_",
    [
        proto.PublishBatchRequest(
            topic="t",
            acks=proto.ACKS_ALL,
            messages=[
                proto.OutgoingMessage(
                    key=b"k", value=b"v" * 300, partition=1, headers=[proto.Header(key="a")], delay_ms=1 << 40
                )
            ]
            * MAX,
        ),
        proto.PublishRequest(topic="t", value=LARGE),
        proto.DeleteTopicRequest(name="n" * CHECKED_BYTES),
    ],
    ids=["batch", "value", "name"],
)
def test_large_requests_that_are_good_are_as_they_were(request_: Any) -> None:
    assert problem(request_) is None
    assert decoder(type(request_), MAX)(request_.SerializeToString()) == request_


@pytest.mark.parametrize("end", [b"\xff", b"\xff" * 20, b"\x0b", b"\x0a\xff\xff\xff\xff\x0f"], ids=repr)
def test_what_is_no_message_is_left_to_the_decoder(end: bytes) -> None:
    octets = (
        proto.PublishBatchRequest(messages=[proto.OutgoingMessage(value=LARGE)]).SerializeToString() + end
    )
    made = decoder(proto.PublishBatchRequest, MAX)(octets)

    assert isinstance(made, Malformed)
    assert "PublishBatchRequest" in made.detail
