"""What consumers put into opaque fields, and error codes, against kio."""

import importlib
import io
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from penstock.core.protocol.codec import Message
from penstock.core.protocol.error_codes import ErrorCode
from penstock.core.protocol.state_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_embedded,
    write_stored,
)
from tests.compatibility.protocol.oracles import to_kio
from tests.property.protocol.samples import sample, seeded


def test_error_codes_and_what_may_be_retried_are_kafkas() -> None:
    ours = {code.name.lower(): (code.value, code.retriable) for code in ErrorCode}

    assert ours == {code.name: (code.value, code.retriable) for code in KioErrorCode}


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("message", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_subscriptions_and_assignments_are_kios_bytes(message: type[Message], version: int) -> None:
    entity = kio_entity(message.__name__, version)
    random = seeded(message.__name__)
    for _ in range(5):
        ours = sample(random, message, version)
        out = io.BytesIO()
        entity_writer(entity)(out, to_kio(entity, ours))

        assert ours.encode(version) == out.getvalue()
        assert read_embedded(message, write_stored(ours, version)) == ours


def test_a_subscription_from_the_future_is_read_as_far_as_we_know_it() -> None:
    known = ConsumerProtocolSubscription(topics=("t",), rack_id="r")
    future = (9).to_bytes(2, "big") + known.encode(3) + b"more"

    assert read_embedded(ConsumerProtocolSubscription, future) == known


def kio_entity(name: str, version: int) -> Any:
    folder = {"S": "consumer_protocol_subscription", "A": "consumer_protocol_assignment"}[name[16]]
    return getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.data"), name)
