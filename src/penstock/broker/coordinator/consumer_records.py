"""Facts of consumer groups (KIP-848) as records of `__consumer_offsets`, in Kafka's own schemas.

    fact                      key, version                               value, all version 0
    ConsumerGroupStored       ConsumerGroupMetadataKey                3  ConsumerGroupMetadataValue
    ConsumerMemberStored      ConsumerGroupMemberMetadataKey          5  ConsumerGroupMemberMetadataValue
    TargetEpochStored         ConsumerGroupTargetAssignmentMetadataKey 6 …TargetAssignmentMetadataValue
    TargetAssignmentStored    ConsumerGroupTargetAssignmentMemberKey  7  …TargetAssignmentMemberValue
    CurrentAssignmentStored   ConsumerGroupCurrentMemberAssignmentKey 8  …CurrentMemberAssignmentValue
    PatternResolved           ConsumerGroupRegularExpressionKey      16  ConsumerGroupRegularExpressionValue

The facts `…Deleted` are the same keys without a value. Key 4 (partition counts, of Kafka before 4.1) is
passed over: the first heartbeat after a load compares the topics anyway.
"""

from collections.abc import Callable, Iterable
from typing import Any, assert_never

from penstock.core.groups import (
    ClassicMember,
    ConsumerFact,
    ConsumerGroupDeleted,
    ConsumerGroupStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentAssignmentDeleted,
    CurrentAssignmentStored,
    MemberProtocol,
    MemberState,
    PartitionSet,
    PatternDeleted,
    PatternResolved,
    TargetAssignmentDeleted,
    TargetAssignmentStored,
    TargetEpochDeleted,
    TargetEpochStored,
    partition_set,
    rows,
)
from penstock.core.model import Timestamp, TopicId
from penstock.core.protocol import Message
from penstock.core.protocol.state_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopicPartitions,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMemberMetadataValueClassicMember,
    ConsumerGroupMemberMetadataValueSupportedProtocol,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMemberValueTopicPartitions,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    read_stored,
    write_stored,
)

GROUP_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, CURRENT_KEY, PATTERN_KEY = 3, 5, 6, 7, 8, 16
VALUE = 0
_STATES = {state.value: state for state in MemberState}


def encode_consumer(fact: ConsumerFact) -> tuple[bytes, bytes | None]:
    """The key and value of the fact's record."""
    value = _value(fact)
    return _key(fact), None if value is None else write_stored(value, VALUE)


def decode_consumer(key: Message, value: bytes | None) -> ConsumerFact | None:
    """The fact of a record with this key; None if the key is not of a consumer group.

    Raises ProtocolError for a value that cannot be decoded.
    """
    return _deleted(key) if value is None else _stored(key, value)


def _key(fact: ConsumerFact) -> bytes:
    group = fact.group_id
    match fact:
        case ConsumerGroupStored() | ConsumerGroupDeleted():
            return write_stored(ConsumerGroupMetadataKey(group_id=group), GROUP_KEY)
        case ConsumerMemberStored() | ConsumerMemberDeleted():
            key: Message = ConsumerGroupMemberMetadataKey(group_id=group, member_id=fact.member_id)
            return write_stored(key, MEMBER_KEY)
        case TargetEpochStored() | TargetEpochDeleted():
            return write_stored(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), TARGET_EPOCH_KEY)
        case TargetAssignmentStored() | TargetAssignmentDeleted():
            key = ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=fact.member_id)
            return write_stored(key, TARGET_KEY)
        case CurrentAssignmentStored() | CurrentAssignmentDeleted():
            key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=fact.member_id)
            return write_stored(key, CURRENT_KEY)
        case PatternResolved() | PatternDeleted():
            key = ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=fact.pattern)
            return write_stored(key, PATTERN_KEY)
        case _:
            assert_never(fact)


def _value(fact: ConsumerFact) -> Message | None:
    match fact:
        case ConsumerGroupStored():
            return ConsumerGroupMetadataValue(epoch=fact.epoch, metadata_hash=fact.metadata_hash)
        case ConsumerMemberStored():
            return _member_value(fact)
        case TargetEpochStored():
            return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=fact.epoch)
        case TargetAssignmentStored():
            return _target_value(fact)
        case CurrentAssignmentStored():
            return _current_value(fact)
        case PatternResolved():
            return _pattern_value(fact)
        case _:
            return None


def _deleted(key: Message) -> ConsumerFact | None:
    match key:
        case ConsumerGroupMetadataKey():
            return ConsumerGroupDeleted(key.group_id)
        case ConsumerGroupMemberMetadataKey():
            return ConsumerMemberDeleted(key.group_id, key.member_id)
        case ConsumerGroupTargetAssignmentMetadataKey():
            return TargetEpochDeleted(key.group_id)
        case ConsumerGroupTargetAssignmentMemberKey():
            return TargetAssignmentDeleted(key.group_id, key.member_id)
        case ConsumerGroupCurrentMemberAssignmentKey():
            return CurrentAssignmentDeleted(key.group_id, key.member_id)
        case ConsumerGroupRegularExpressionKey():
            return PatternDeleted(key.group_id, key.regular_expression)
        case _:
            return None


def _stored(key: Message, value: bytes) -> ConsumerFact | None:
    match key:
        case ConsumerGroupMetadataKey():
            return _group_of(key.group_id, value)
        case ConsumerGroupMemberMetadataKey():
            return _member_of(key.group_id, key.member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey():
            stored = read_stored(ConsumerGroupTargetAssignmentMetadataValue, value)
            return TargetEpochStored(key.group_id, stored.assignment_epoch)
        case ConsumerGroupTargetAssignmentMemberKey():
            target = read_stored(ConsumerGroupTargetAssignmentMemberValue, value)
            return TargetAssignmentStored(key.group_id, key.member_id, set_of(target.topic_partitions))
        case ConsumerGroupCurrentMemberAssignmentKey():
            return _current_of(key.group_id, key.member_id, value)
        case ConsumerGroupRegularExpressionKey():
            return _pattern_of(key.group_id, key.regular_expression, value)
        case _:
            return None


def _group_of(group_id: str, value: bytes) -> ConsumerGroupStored:
    stored = read_stored(ConsumerGroupMetadataValue, value)
    return ConsumerGroupStored(group_id, stored.epoch, stored.metadata_hash)


def _member_value(fact: ConsumerMemberStored) -> ConsumerGroupMemberMetadataValue:
    classic = fact.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=fact.instance_id,
        rack_id=fact.rack_id,
        client_id=fact.client_id,
        client_host=fact.client_host,
        subscribed_topic_names=fact.topics,
        subscribed_topic_regex=fact.pattern,
        rebalance_timeout_ms=fact.rebalance_timeout_ms,
        server_assignor=fact.assignor,
        classic_member_metadata=None
        if classic is None
        else ConsumerGroupMemberMetadataValueClassicMember(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=tuple(
                [
                    ConsumerGroupMemberMetadataValueSupportedProtocol(name=name, metadata=metadata)
                    for name, metadata in classic.protocols
                ]
            ),
        ),
        session_timeout_ms=fact.session_timeout_ms,
    )


def _member_of(group_id: str, member_id: str, value: bytes) -> ConsumerMemberStored:
    stored = read_stored(ConsumerGroupMemberMetadataValue, value)
    classic = stored.classic_member_metadata
    return ConsumerMemberStored(
        group_id,
        member_id,
        stored.instance_id,
        stored.rack_id,
        stored.client_id,
        stored.client_host,
        tuple(stored.subscribed_topic_names),
        # Kafka writes an empty one for none.
        stored.subscribed_topic_regex or None,
        stored.rebalance_timeout_ms,
        stored.server_assignor,
        None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple([MemberProtocol(each.name, bytes(each.metadata)) for each in classic.supported_protocols]),
        ),
        stored.session_timeout_ms,
    )


def _target_value(fact: TargetAssignmentStored) -> ConsumerGroupTargetAssignmentMemberValue:
    part = ConsumerGroupTargetAssignmentMemberValueTopicPartitions
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=parts_of(part, fact.partitions))


def _current_value(fact: CurrentAssignmentStored) -> ConsumerGroupCurrentMemberAssignmentValue:
    part = ConsumerGroupCurrentMemberAssignmentValueTopicPartitions
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=fact.epoch,
        previous_member_epoch=fact.previous_epoch,
        state=fact.state,
        assigned_partitions=parts_of(part, fact.assigned),
        partitions_pending_revocation=parts_of(part, fact.revoking),
    )


def _current_of(group_id: str, member_id: str, value: bytes) -> CurrentAssignmentStored:
    stored = read_stored(ConsumerGroupCurrentMemberAssignmentValue, value)
    return CurrentAssignmentStored(
        group_id,
        member_id,
        stored.member_epoch,
        stored.previous_member_epoch,
        _STATES.get(stored.state, MemberState.UNKNOWN),
        set_of(stored.assigned_partitions),
        set_of(stored.partitions_pending_revocation),
    )


def _pattern_value(fact: PatternResolved) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(topics=fact.topics, version=0, timestamp=fact.resolved_at)


def _pattern_of(group_id: str, pattern: str, value: bytes) -> PatternResolved:
    stored = read_stored(ConsumerGroupRegularExpressionValue, value)
    return PatternResolved(group_id, pattern, tuple(stored.topics), Timestamp(stored.timestamp))


def parts_of(part: Callable[..., Any], partitions: PartitionSet) -> tuple[Any, ...]:
    return tuple([part(topic_id=topic_id, partitions=indexes) for topic_id, indexes in rows(partitions)])


def set_of(parts: Iterable[Any]) -> PartitionSet:
    return partition_set((TopicId(each.topic_id), each.partitions) for each in parts)
