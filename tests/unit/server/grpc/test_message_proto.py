import pytest

from penstock.client.cluster import ClusterError, OutgoingRecord
from penstock.server.grpc.message_proto import outgoing_all, outgoing_of
from penstock.v1 import penstock_pb2 as proto

NOW_MS = 1_000
SIZES = (0, 1, 2, 3, 126, 127, 128, 129, 16_381, 16_383, 16_384, 20_000)
MESSAGES = [
    *(proto.OutgoingMessage(value=b"v" * size) for size in SIZES),
    *(proto.OutgoingMessage(key=b"k" * size) for size in SIZES),
    *(proto.OutgoingMessage(key=b"k" * one, value=b"v" * other) for one in SIZES for other in SIZES),
    proto.OutgoingMessage(),
    proto.OutgoingMessage(value=b"v", partition=0),
    proto.OutgoingMessage(value=b"v", partition=3),
    proto.OutgoingMessage(value=b"v", headers=[proto.Header(key="h")]),
    proto.OutgoingMessage(key=b"k", value=b"v", headers=[proto.Header(key="", value=b"")]),
    proto.OutgoingMessage(key=b"k", value=b"v", priority=0),
    proto.OutgoingMessage(value=b"v", ttl_ms=0),
    proto.OutgoingMessage(value=b"v", delay_ms=0),
    proto.OutgoingMessage(value=b"v", deliver_at_ms=7),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: str(one)[:40])
def test_many_messages_are_read_as_one_is(message: proto.OutgoingMessage) -> None:
    (found,) = outgoing_all([message], NOW_MS)

    assert found == outgoing_of(message, NOW_MS)


def test_fields_that_nobody_knows_change_nothing() -> None:
    # Field 1,000, which a later version may have.
    message = proto.OutgoingMessage.FromString(b"\x12\x01v" + b"\xc0\x3e\x05")

    assert outgoing_all([message], NOW_MS) == [OutgoingRecord(None, b"v")]


def test_a_wrong_message_does_not_hold_up_the_others() -> None:
    good = proto.OutgoingMessage(value=b"v")

    first, wrong, last = outgoing_all([good, proto.OutgoingMessage(partition=-1), good], NOW_MS)

    assert first == last == OutgoingRecord(None, b"v")
    assert isinstance(wrong, ClusterError)
    assert wrong.detail == "partition: -1 is negative"
