"""Facts as records of `__consumer_offsets`, in Kafka's own schemas.

    fact             key                         value, version written
    GroupStored      GroupMetadataKey      2     GroupMetadataValue   3
    GroupDeleted     GroupMetadataKey      2     none
    OffsetCommitted  OffsetCommitKey       1     OffsetCommitValue    3, 4 with a topic id, 1 with an expiry
    OffsetDeleted    OffsetCommitKey       1     none

A `TransactionalOffsetCommitted` is the record of its position in a transactional batch of its producer;
a `TransactionEnded` is no record but a marker.

The bytes are those of Kafka's own classes, the topic id being a tagged field that older
readers of version 4 skip. All older versions are read. This module is the `RecordCodec` of groups;
the facts of consumer groups are in `consumer_records`, those of share groups in `share_records`.
"""

from collections.abc import Sequence

from penstock.broker.coordinator.consumer_records import decode_consumer, encode_consumer
from penstock.broker.coordinator.share_records import decode_share, encode_share
from penstock.core.groups import (
    Fact,
    GroupCoordinator,
    GroupDeleted,
    GroupStored,
    OffsetCommitted,
    OffsetDeleted,
    ShareFact,
    StoredMember,
    TransactionalOffsetCommitted,
    TransactionEnded,
)
from penstock.core.model import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProtocolError,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.core.protocol.state_records import (
    OFFSETS_KEYS,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMember,
    OffsetCommitKey,
    OffsetCommitValue,
    read_key,
    read_stored,
    write_stored,
)
from penstock.core.records import ControlRecord, ControlType

GROUP_KEY, OFFSET_KEY = 2, 1
GROUP_VALUE = 3
OFFSET_VALUE, OFFSET_VALUE_WITH_EXPIRY, OFFSET_VALUE_WITH_TOPIC_ID = 3, 1, 4
NEVER = -1


def encode(fact: Fact) -> tuple[bytes, bytes | None]:
    """The key and value of the fact's record."""
    match fact:
        case GroupStored():
            return _group_key(fact.group_id), write_stored(_group_value(fact), GROUP_VALUE)
        case GroupDeleted():
            return _group_key(fact.group_id), None
        case OffsetCommitted():
            return _offset_key(fact.group_id, fact.partition), _offset_value(fact)
        case OffsetDeleted():
            return _offset_key(fact.group_id, fact.partition), None
        case TransactionalOffsetCommitted():
            return encode(fact.position)
        case TransactionEnded():
            raise AssertionError("a marker is a control batch, written by its leader")
        case _:
            return encode_share(fact) if isinstance(fact, ShareFact) else encode_consumer(fact)


def decode(key: bytes | None, value: bytes | None) -> Fact | None:
    """The fact in a record; None for kinds of state that are not supported yet.

    Raises ProtocolError for a value that cannot be decoded: skipping it would restore the key's
    previous value.
    """
    if key is None:
        return None
    try:
        decoded = read_key(OFFSETS_KEYS, key)
    except ProtocolError:
        return None
    match decoded:
        case GroupMetadataKey():
            return GroupDeleted(decoded.group) if value is None else _group_of(decoded.group, value)
        case OffsetCommitKey():
            partition = TopicPartition(TopicName(decoded.topic), PartitionIndex(decoded.partition))
            if value is None:
                return OffsetDeleted(decoded.group, partition)
            return _offset_of(decoded.group, partition, value)
        case _:
            return decode_consumer(decoded, value) or decode_share(decoded, value)


class TransactionalOffsets:
    """How the positions of open transactions are stored: the `TransactionalFacts` of groups."""

    def producer_of(self, fact: Fact) -> tuple[int, int] | None:
        """The producer id and epoch of the batch that the fact's record belongs to, if any."""
        if isinstance(fact, TransactionalOffsetCommitted):
            return fact.producer_id, fact.producer_epoch
        return None

    def in_transaction(self, fact: Fact, producer_id: int, producer_epoch: int) -> Fact:
        """The fact of a record that stands in a transactional batch."""
        if isinstance(fact, OffsetCommitted):
            return TransactionalOffsetCommitted(ProducerId(producer_id), ProducerEpoch(producer_epoch), fact)
        return fact

    def ended(self, marker: ControlRecord) -> TransactionEnded:
        return TransactionEnded(ProducerId(marker.producer_id), marker.control_type is ControlType.COMMIT)

    def to_copy_before(
        self, machine: GroupCoordinator, marker: ControlRecord, *, is_rewriting: bool
    ) -> Sequence[Fact]:
        """What the marker decides on and has to stand once more before it."""
        return machine.image.pending.to_copy_before(self.ended(marker), is_rewriting=is_rewriting)


def _group_key(group_id: str) -> bytes:
    return write_stored(GroupMetadataKey(group=group_id), GROUP_KEY)


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return write_stored(key, OFFSET_KEY)


def _group_value(fact: GroupStored) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=fact.protocol_type,
        generation=fact.generation,
        protocol=fact.protocol,
        leader=fact.leader,
        current_state_timestamp=fact.state_since,
        members=tuple(
            GroupMetadataValueMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in fact.members
        ),
    )


def _group_of(group_id: str, value: bytes) -> GroupStored:
    stored = read_stored(GroupMetadataValue, value)
    return GroupStored(
        group_id,
        stored.protocol_type,
        stored.generation,
        stored.protocol,
        stored.leader,
        Timestamp(stored.current_state_timestamp),
        tuple(
            StoredMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout,
                member.session_timeout,
                bytes(member.subscription),
                bytes(member.assignment),
            )
            for member in stored.members
        ),
    )


def _offset_value(fact: OffsetCommitted) -> bytes:
    value = OffsetCommitValue(
        offset=fact.offset,
        leader_epoch=fact.leader_epoch,
        metadata=fact.metadata,
        commit_timestamp=fact.committed_at,
        expire_timestamp=NEVER if fact.expires_at is None else fact.expires_at,
        topic_id=fact.topic_id or ZERO_UUID,
    )
    if fact.expires_at is not None:
        return write_stored(value, OFFSET_VALUE_WITH_EXPIRY)
    return write_stored(value, OFFSET_VALUE if fact.topic_id is None else OFFSET_VALUE_WITH_TOPIC_ID)


def _offset_of(group_id: str, partition: TopicPartition, value: bytes) -> OffsetCommitted:
    stored = read_stored(OffsetCommitValue, value)
    return OffsetCommitted(
        group_id,
        partition,
        Offset(stored.offset),
        LeaderEpoch(stored.leader_epoch),
        stored.metadata,
        Timestamp(stored.commit_timestamp),
        None if stored.expire_timestamp == NEVER else Timestamp(stored.expire_timestamp),
        None if stored.topic_id == ZERO_UUID else TopicId(stored.topic_id),
    )
