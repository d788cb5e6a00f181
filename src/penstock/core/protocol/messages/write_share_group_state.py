"""WriteShareGroupState: storing the state of share partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
    Uuid,
    since,
)


@part
class WriteShareGroupStateRequestStateBatch(Part):
    """The delivery state of a range of records."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@part
class WriteShareGroupStateRequestPartition(Part):
    """A partition that the request is about."""

    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)
    state_batches: Array[WriteShareGroupStateRequestStateBatch]


@part
class WriteShareGroupStateRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid
    partitions: Array[WriteShareGroupStateRequestPartition]


@message(api_key=85, versions=range(2), flexible_from=0)
class WriteShareGroupStateRequest(Message):
    """Sent by a partition leader to the share coordinator when deliveries or acknowledgements changed it."""

    group_id: String
    topics: Array[WriteShareGroupStateRequestTopic]


@part
class WriteShareGroupStateResponsePartition(Part):
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16
    error_message: NullableString = None


@part
class WriteShareGroupStateResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid
    partitions: Array[WriteShareGroupStateResponsePartition]


@message(api_key=85, versions=range(2), flexible_from=0)
class WriteShareGroupStateResponse(Message):
    """Sent by the share coordinator: whether each partition's state is stored."""

    results: Array[WriteShareGroupStateResponseTopic]
