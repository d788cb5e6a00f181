"""Facts as records: nothing is lost, and the bytes are Kafka's."""

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.broker.coordinator import group_records
from penstock.broker.coordinator.group_records import decode, encode
from penstock.broker.coordinator.runtime import BATCH_BYTES_MAX, write_batches
from penstock.core.groups import (
    ClassicMember,
    ConsumerGroupDeleted,
    ConsumerGroupStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentAssignmentDeleted,
    CurrentAssignmentStored,
    Fact,
    GroupDeleted,
    GroupStored,
    MemberProtocol,
    MemberState,
    OffsetCommitted,
    OffsetDeleted,
    PatternDeleted,
    PatternResolved,
    ShareCurrent,
    SharedTopic,
    ShareFactDeleted,
    ShareGroupStored,
    ShareMemberStored,
    ShareRecordKind,
    ShareTarget,
    ShareTargetEpoch,
    ShareTopics,
    StoredMember,
    TargetAssignmentDeleted,
    TargetAssignmentStored,
    TargetEpochDeleted,
    TargetEpochStored,
)
from penstock.core.model import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProtocolError,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.records import check_batches, read_records

AT = TopicPartition(TopicName("orders"), PartitionIndex(3))
MEMBER = StoredMember("m-1", "static-1", "client", "/127.0.0.1", 60_000, 10_000, b"topics", b"partitions")
STORED = GroupStored("g1", "consumer", 7, "range", "m-1", Timestamp(1_700_000_000_000), (MEMBER,))
COMMITTED = OffsetCommitted("g1", AT, Offset(42), LeaderEpoch(5), "note", Timestamp(1_700_000_000_000))
PARTITIONS = {TopicId(UUID(int=9)): frozenset((3, 1)), TopicId(UUID(int=8)): frozenset((0,))}
CONSUMER = ConsumerMemberStored(
    *("g1", "m-1", "static-1", "east", "client", "/127.0.0.1", ("bills", "orders"), "o.*", 60_000, "range")
)
CURRENT = CurrentAssignmentStored(
    "g1", "m-1", 7, 6, MemberState.UNREVOKED_PARTITIONS, PARTITIONS, {TopicId(UUID(int=7)): frozenset((2,))}
)
SHARE_PARTITIONS = {TopicId(UUID(int=9)): frozenset((3, 1))}
SHARE_MEMBER = ShareMemberStored("g1", "m-1", "east", "client", "/127.0.0.1", ("bills", "orders"))
SHARE_TOPICS = ShareTopics("g1", (SharedTopic(TopicId(UUID(int=9)), "orders", 2),))

FACTS: list[Fact] = [
    SHARE_MEMBER,
    replace(SHARE_MEMBER, rack_id=None, topics=(), session_timeout_ms=9_000),
    ShareGroupStored("g1", 7, -2),
    ShareTargetEpoch("g1", 7),
    ShareTarget("g1", "m-1", SHARE_PARTITIONS),
    ShareCurrent("g1", "m-1", 7, 6, PARTITIONS),
    SHARE_TOPICS,
    *[ShareFactDeleted("g1", kind, "m-1") for kind in ShareRecordKind if kind in (10, 13, 14)],
    *[ShareFactDeleted("g1", kind) for kind in ShareRecordKind if kind in (11, 12, 15)],
    ConsumerGroupStored("g1", 7, -1),
    ConsumerGroupDeleted("g1"),
    CONSUMER,
    replace(CONSUMER, instance_id=None, rack_id=None, pattern=None, assignor=None, topics=()),
    replace(CONSUMER, classic=ClassicMember(10_000, (MemberProtocol("range", b"topics"),))),
    replace(CONSUMER, session_timeout_ms=9_000),
    ConsumerMemberDeleted("g1", "m-1"),
    TargetEpochStored("g1", 7),
    TargetEpochDeleted("g1"),
    TargetAssignmentStored("g1", "m-1", PARTITIONS),
    TargetAssignmentStored("g1", "m-1", {}),
    TargetAssignmentDeleted("g1", "m-1"),
    CURRENT,
    CurrentAssignmentDeleted("g1", "m-1"),
    PatternResolved("g1", "o.*", ("orders",), Timestamp(1_700_000_000_000)),
    PatternDeleted("g1", "o.*"),
    STORED,
    replace(STORED, protocol=None, leader=None, members=()),
    replace(STORED, members=(MEMBER, replace(MEMBER, member_id="m-2", instance_id=None, assignment=b""))),
    GroupDeleted("g1"),
    COMMITTED,
    replace(COMMITTED, topic_id=TopicId(UUID(int=9))),
    replace(COMMITTED, leader_epoch=LeaderEpoch(-1), metadata=""),
    OffsetDeleted("g1", AT),
]


@pytest.mark.parametrize("fact", FACTS, ids=repr)
def test_a_fact_survives_being_a_record(fact: Fact) -> None:
    assert decode(*encode(fact)) == fact


def test_an_offset_with_an_expiry_keeps_it_and_loses_what_that_version_cannot_say() -> None:
    expiring = replace(COMMITTED, expires_at=Timestamp(1_700_000_009_999), topic_id=TopicId(UUID(int=9)))

    assert decode(*encode(expiring)) == replace(expiring, leader_epoch=LeaderEpoch(-1), topic_id=None)


# Written by the classes of Apache Kafka 4.3.1 for the same content.
KEY_OF_OFFSET = "00010002673100066f726465727300000003"
KEY_OF_GROUP = "000200026731"
VALUE = "0003000000000000002a0000000500046e6f74650000018bcfe56800"
VALUE_WITH_TOPIC_ID = (
    "0004000000000000002a00000005056e6f74650000018bcfe5680001001000000000000000000000000000000009"
)
VALUE_WITH_EXPIRY = "0001000000000000002a00046e6f74650000018bcfe568000000018bcfe58f0f"
VALUE_OF_GROUP = (
    "00030008636f6e73756d657200000007000572616e676500036d2d310000018bcfe568000000000100036d2d3100087374"
    "617469632d310006636c69656e74000a2f3132372e302e302e310000ea600000271000000006746f706963730000000a70"
    "6172746974696f6e73"
)


@pytest.mark.parametrize(
    ("fact", "key", "value"),
    [
        (COMMITTED, KEY_OF_OFFSET, VALUE),
        (replace(COMMITTED, topic_id=TopicId(UUID(int=9))), KEY_OF_OFFSET, VALUE_WITH_TOPIC_ID),
        (replace(COMMITTED, expires_at=Timestamp(1_700_000_009_999)), KEY_OF_OFFSET, VALUE_WITH_EXPIRY),
        (STORED, KEY_OF_GROUP, VALUE_OF_GROUP),
        (
            SHARE_MEMBER,
            "000a0002673100036d2d31",
            "0000056561737407636c69656e740b2f3132372e302e302e31030662696c6c73076f726465727300",
        ),
        (ShareGroupStored("g1", 7, -2), "000b00026731", "000000000007fffffffffffffffe00"),
        (ShareTargetEpoch("g1", 7), "000c00026731", "00000000000700"),
        (
            ShareTarget("g1", "m-1", SHARE_PARTITIONS),
            "000d0002673100036d2d31",
            "000002000000000000000000000000000000090300000001000000030000",
        ),
        (
            ShareCurrent("g1", "m-1", 7, 6, SHARE_PARTITIONS),
            "000e0002673100036d2d31",
            "000000000007000000060102000000000000000000000000000000090300000001000000030000",
        ),
        (
            SHARE_TOPICS,
            "000f00026731",
            "0000010200000000000000000000000000000009076f7264657273030000000000000001000100",
        ),
    ],
    ids=[
        *("offset", "offset with topic id", "offset with expiry", "group"),
        *("share member", "share group", "share target epoch", "share target", "share current"),
        "share topics",
    ],
)
def test_records_are_the_bytes_that_kafka_writes(fact: Fact, key: str, value: str) -> None:
    assert encode(fact) == (bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize("key", [None, b"", b"\x00\x63rest", b"\x00\x11\x00\x02g1"])
def test_records_of_other_kinds_are_no_facts(key: bytes | None) -> None:
    assert decode(key, b"\x00\x00") is None


def test_a_value_that_cannot_be_read_is_an_error_and_not_a_tombstone() -> None:
    key, _ = encode(COMMITTED)

    with pytest.raises(ProtocolError):
        decode(key, b"\x00\x63")


def test_many_facts_are_split_into_batches_that_a_topic_takes() -> None:
    facts: list[Fact] = [replace(COMMITTED, group_id=f"g{n}", metadata="x" * 4_000) for n in range(500)]

    buffer, headers = write_batches(facts, group_records, Timestamp(1))

    assert len(headers) > 1
    assert check_batches(bytes(buffer)) == headers
    assert all(header.size_bytes <= BATCH_BYTES_MAX + 1_000 for header in headers)
    assert _facts_in(buffer) == facts


def _facts_in(buffer: bytearray) -> list[Fact | None]:
    found, at = [], 0
    for header in check_batches(bytes(buffer)):
        batch = bytes(buffer[at : at + header.size_bytes])
        found += [decode(record.key, record.value) for record in read_records(batch)]
        at += header.size_bytes
    return found
