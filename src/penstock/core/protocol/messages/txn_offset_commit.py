"""TxnOffsetCommit: storing a group's positions inside a transaction."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, NullableString, Part, String, since


@part
class TxnOffsetCommitRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: NullableString


@part
class TxnOffsetCommitRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partitions: Array[TxnOffsetCommitRequestPartition]


@message(api_key=28, versions=range(6), flexible_from=3)
class TxnOffsetCommitRequest(Message):
    """Sent by a transactional producer to the group coordinator."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)
    member_id: String = since(3, default="")
    group_instance_id: NullableString = since(3, default=None)
    topics: Array[TxnOffsetCommitRequestTopic]


@part
class TxnOffsetCommitResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


@part
class TxnOffsetCommitResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[TxnOffsetCommitResponsePartition]


@message(api_key=28, versions=range(6), flexible_from=3)
class TxnOffsetCommitResponse(Message):
    """Sent by the group coordinator: whether each position was taken, pending the transaction."""

    throttle_time_ms: Int32
    topics: Array[TxnOffsetCommitResponseTopic]
