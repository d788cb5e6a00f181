"""ReadShareGroupState: loading the stored state of share partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, Int64, NullableString, Part, String, Uuid


@part
class ReadShareGroupStateRequestPartition(Part):
    """A partition that the request is about."""

    partition: Int32
    leader_epoch: Int32


@part
class ReadShareGroupStateRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid
    partitions: Array[ReadShareGroupStateRequestPartition]


@message(api_key=84, versions=range(1), flexible_from=0)
class ReadShareGroupStateRequest(Message):
    """Sent by a partition leader to the share coordinator before it serves a share group."""

    group_id: String
    topics: Array[ReadShareGroupStateRequestTopic]


@part
class ReadShareGroupStateResponseStateBatch(Part):
    """The delivery state of a range of records."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@part
class ReadShareGroupStateResponsePartition(Part):
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16
    error_message: NullableString = None
    state_epoch: Int32
    start_offset: Int64
    state_batches: Array[ReadShareGroupStateResponseStateBatch]


@part
class ReadShareGroupStateResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid
    partitions: Array[ReadShareGroupStateResponsePartition]


@message(api_key=84, versions=range(1), flexible_from=0)
class ReadShareGroupStateResponse(Message):
    """Sent by the share coordinator: where each share partition starts, and the state of what follows."""

    results: Array[ReadShareGroupStateResponseTopic]
