"""Facts as bytes."""

from uuid import UUID

import msgspec
import pytest

from penstock.core.metadata import (
    FORMAT_VERSION,
    Fact,
    Partition,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    decode_fact,
    encode_fact,
)
from penstock.core.model import (
    BrokerEpoch,
    CorruptionError,
    NodeId,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
)

ID = TopicId(UUID(bytes=bytes(range(16))))
CREATED = TopicCreated(TopicName("orders"), ID)


def test_a_fact_has_the_bytes_that_the_format_describes() -> None:
    expected = b"\x01\x93\xadtopic_created\xa6orders\xc4\x10" + bytes(range(16))

    assert encode_fact(CREATED) == expected
    assert decode_fact(memoryview(expected)) == CREATED


@pytest.mark.parametrize(
    "fact",
    [
        PartitionCreated(ID, Partition(PartitionIndex(0), (NodeId(1),), (NodeId(1),), NodeId(1))),
        ProducerIdsAllocated(NodeId(1), BrokerEpoch(2), ProducerId(2**62), 1_000),
    ],
)
def test_a_fact_survives_the_way_through_bytes(fact: Fact) -> None:
    assert decode_fact(encode_fact(fact)) == fact


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        b"\x00" + encode_fact(CREATED)[1:],
        bytes((FORMAT_VERSION + 1,)) + encode_fact(CREATED)[1:],
        encode_fact(CREATED)[:-1],
        encode_fact(CREATED) + b"\x00",
        b"\x01" + msgspec.msgpack.encode(["topic_vanished", "orders"]),
        b"\x01" + msgspec.msgpack.encode(["topic_created", "orders"]),
        b"\x01" + msgspec.msgpack.encode(["topic_created", "orders", bytes(16), "a later field"]),
        b"\x01" + msgspec.msgpack.encode(["topic_created", 5, bytes(16)]),
        b"\x01" + msgspec.msgpack.encode({"type": "topic_created"}),
        b"\x01" + b"\x91" * 100_000,
        b"\x01\x93\xadtopic_created\xa2\xff\xff\xc4\x10" + bytes(16),
    ],
)
def test_bytes_that_are_no_known_fact_are_corruption_and_never_skipped(content: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_fact(content)
