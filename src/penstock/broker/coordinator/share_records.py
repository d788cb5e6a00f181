"""Facts of share groups (KIP-932) as records of `__consumer_offsets`, in Kafka's own schemas.

    fact                key, version                                 value, all version 0
    ShareMemberStored   ShareGroupMemberMetadataKey              10  ShareGroupMemberMetadataValue
    ShareGroupStored    ShareGroupMetadataKey                    11  ShareGroupMetadataValue
    ShareTargetEpoch    ShareGroupTargetAssignmentMetadataKey    12  …TargetAssignmentMetadataValue
    ShareTarget         ShareGroupTargetAssignmentMemberKey      13  …TargetAssignmentMemberValue
    ShareCurrent        ShareGroupCurrentMemberAssignmentKey     14  …CurrentMemberAssignmentValue
    ShareTopics         ShareGroupStatePartitionMetadataKey      15  …StatePartitionMetadataValue

A `ShareFactDeleted` is the key alone. Where a group stands in its topics is in `__queue_state`.
"""

from typing import assert_never

from penstock.broker.coordinator.consumer_records import parts_of, set_of
from penstock.core.groups import (
    MemberState,
    ShareCurrent,
    SharedTopic,
    ShareFact,
    ShareFactDeleted,
    ShareGroupStored,
    ShareMemberStored,
    ShareRecordKind,
    ShareTarget,
    ShareTargetEpoch,
    ShareTopics,
)
from penstock.core.model import TopicId
from penstock.core.protocol import Message
from penstock.core.protocol.state_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupCurrentMemberAssignmentValueTopicPartitions,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupStatePartitionMetadataValueTopicPartitions,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMemberValueTopicPartitions,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    read_stored,
    write_stored,
)

VALUE = 0
_KEYS: dict[ShareRecordKind, type[Message]] = {
    ShareRecordKind.MEMBER: ShareGroupMemberMetadataKey,
    ShareRecordKind.GROUP: ShareGroupMetadataKey,
    ShareRecordKind.TARGET_EPOCH: ShareGroupTargetAssignmentMetadataKey,
    ShareRecordKind.TARGET: ShareGroupTargetAssignmentMemberKey,
    ShareRecordKind.CURRENT: ShareGroupCurrentMemberAssignmentKey,
    ShareRecordKind.TOPICS: ShareGroupStatePartitionMetadataKey,
}
_KINDS = {key: kind for kind, key in _KEYS.items()}
_OF_MEMBERS = (ShareRecordKind.MEMBER, ShareRecordKind.TARGET, ShareRecordKind.CURRENT)


def encode_share(fact: ShareFact) -> tuple[bytes, bytes | None]:
    """The key and value of the fact's record."""
    match fact:
        case ShareMemberStored():
            return _key(fact.group_id, ShareRecordKind.MEMBER, fact.member_id), _written(_member_value(fact))
        case ShareGroupStored():
            group = ShareGroupMetadataValue(epoch=fact.epoch, metadata_hash=fact.metadata_hash)
            return _key(fact.group_id, ShareRecordKind.GROUP), _written(group)
        case ShareTargetEpoch():
            epoch = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=fact.epoch)
            return _key(fact.group_id, ShareRecordKind.TARGET_EPOCH), _written(epoch)
        case ShareTarget():
            return _key(fact.group_id, ShareRecordKind.TARGET, fact.member_id), _written(_target_value(fact))
        case ShareCurrent():
            key = _key(fact.group_id, ShareRecordKind.CURRENT, fact.member_id)
            return key, _written(_current_value(fact))
        case ShareTopics():
            return _key(fact.group_id, ShareRecordKind.TOPICS), _written(_topics_value(fact))
        case ShareFactDeleted():
            return _key(fact.group_id, fact.kind, fact.member_id), None
        case _:
            assert_never(fact)


def decode_share(key: Message, value: bytes | None) -> ShareFact | None:
    """The fact of a record with this key; None if the key is not of a share group.

    Raises ProtocolError for a value that cannot be decoded.
    """
    kind = _KINDS.get(type(key))
    if kind is None:
        return None
    group_id: str = key.group_id  # type: ignore[attr-defined]
    member_id: str = key.member_id if kind in _OF_MEMBERS else ""  # type: ignore[attr-defined]
    if value is None:
        return ShareFactDeleted(group_id, kind, member_id)
    return _stored(kind, group_id, member_id, value)


def _stored(kind: ShareRecordKind, group_id: str, member_id: str, value: bytes) -> ShareFact:
    match kind:
        case ShareRecordKind.MEMBER:
            return _member_of(group_id, member_id, value)
        case ShareRecordKind.GROUP:
            group = read_stored(ShareGroupMetadataValue, value)
            return ShareGroupStored(group_id, group.epoch, group.metadata_hash)
        case ShareRecordKind.TARGET_EPOCH:
            epoch = read_stored(ShareGroupTargetAssignmentMetadataValue, value)
            return ShareTargetEpoch(group_id, epoch.assignment_epoch)
        case ShareRecordKind.TARGET:
            target = read_stored(ShareGroupTargetAssignmentMemberValue, value)
            return ShareTarget(group_id, member_id, set_of(target.topic_partitions))
        case ShareRecordKind.CURRENT:
            return _current_of(group_id, member_id, value)
        case ShareRecordKind.TOPICS:
            return _topics_of(group_id, value)
        case _:
            assert_never(kind)


def _key(group_id: str, kind: ShareRecordKind, member_id: str = "") -> bytes:
    fields = {"group_id": group_id}
    if kind in _OF_MEMBERS:
        fields["member_id"] = member_id
    return write_stored(_KEYS[kind](**fields), kind)


def _written(value: Message) -> bytes:
    return write_stored(value, VALUE)


def _member_value(fact: ShareMemberStored) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=fact.rack_id,
        client_id=fact.client_id,
        client_host=fact.client_host,
        subscribed_topic_names=fact.topics,
        session_timeout_ms=fact.session_timeout_ms,
    )


def _member_of(group_id: str, member_id: str, value: bytes) -> ShareMemberStored:
    stored = read_stored(ShareGroupMemberMetadataValue, value)
    return ShareMemberStored(
        group_id,
        member_id,
        stored.rack_id,
        stored.client_id,
        stored.client_host,
        tuple(stored.subscribed_topic_names),
        stored.session_timeout_ms,
    )


def _target_value(fact: ShareTarget) -> ShareGroupTargetAssignmentMemberValue:
    part = ShareGroupTargetAssignmentMemberValueTopicPartitions
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=parts_of(part, fact.partitions))


def _current_value(fact: ShareCurrent) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=fact.epoch,
        previous_member_epoch=fact.previous_epoch,
        # A member has nothing to give up, so it is always there.
        state=MemberState.STABLE,
        assigned_partitions=parts_of(ShareGroupCurrentMemberAssignmentValueTopicPartitions, fact.assigned),
    )


def _current_of(group_id: str, member_id: str, value: bytes) -> ShareCurrent:
    stored = read_stored(ShareGroupCurrentMemberAssignmentValue, value)
    assigned = set_of(stored.assigned_partitions)
    return ShareCurrent(group_id, member_id, stored.member_epoch, stored.previous_member_epoch, assigned)


def _topics_value(fact: ShareTopics) -> ShareGroupStatePartitionMetadataValue:
    part = ShareGroupStatePartitionMetadataValueTopicPartitions
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=(),
        initialized_topics=tuple(
            [
                part(topic_id=each.id, topic_name=each.name, partitions=tuple(range(each.partitions)))
                for each in fact.topics
            ]
        ),
        deleting_topics=(),
    )


def _topics_of(group_id: str, value: bytes) -> ShareTopics:
    stored = read_stored(ShareGroupStatePartitionMetadataValue, value)
    # Kafka counts those apart whose state is not written yet; of a topic it may name some partitions alone.
    found: dict[TopicId, SharedTopic] = {}
    for each in (*stored.initialized_topics, *stored.initializing_topics):
        count = max(each.partitions, default=-1) + 1
        known = found.get(TopicId(each.topic_id))
        if known is None or known.partitions < count:
            found[TopicId(each.topic_id)] = SharedTopic(TopicId(each.topic_id), each.topic_name, count)
    return ShareTopics(group_id, tuple(sorted(found.values(), key=lambda topic: topic.name)))
