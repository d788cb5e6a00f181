"""DeleteShareGroupState: removing the stored state of share partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, NullableString, Part, String, Uuid


@part
class DeleteShareGroupStateRequestPartition(Part):
    """A partition that the request is about."""

    partition: Int32


@part
class DeleteShareGroupStateRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid
    partitions: Array[DeleteShareGroupStateRequestPartition]


@message(api_key=86, versions=range(1), flexible_from=0)
class DeleteShareGroupStateRequest(Message):
    """Sent by a group coordinator to the share coordinator when a group or its offsets are deleted."""

    group_id: String
    topics: Array[DeleteShareGroupStateRequestTopic]


@part
class DeleteShareGroupStateResponsePartition(Part):
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16
    error_message: NullableString = None


@part
class DeleteShareGroupStateResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid
    partitions: Array[DeleteShareGroupStateResponsePartition]


@message(api_key=86, versions=range(1), flexible_from=0)
class DeleteShareGroupStateResponse(Message):
    """Sent by the share coordinator: what became of each partition's state."""

    results: Array[DeleteShareGroupStateResponseTopic]
