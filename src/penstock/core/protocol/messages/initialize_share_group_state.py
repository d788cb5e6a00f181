"""InitializeShareGroupState: starting the stored state of share partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, NullableString, Part, String, Uuid


@part
class InitializeShareGroupStateRequestPartition(Part):
    """A partition that the request is about."""

    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@part
class InitializeShareGroupStateRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid
    partitions: Array[InitializeShareGroupStateRequestPartition]


@message(api_key=83, versions=range(1), flexible_from=0)
class InitializeShareGroupStateRequest(Message):
    """Sent by a group coordinator to the share coordinator when a share group first subscribes to a topic."""

    group_id: String
    topics: Array[InitializeShareGroupStateRequestTopic]


@part
class InitializeShareGroupStateResponsePartition(Part):
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16
    error_message: NullableString = None


@part
class InitializeShareGroupStateResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid
    partitions: Array[InitializeShareGroupStateResponsePartition]


@message(api_key=83, versions=range(1), flexible_from=0)
class InitializeShareGroupStateResponse(Message):
    """Sent by the share coordinator: whether each partition's state exists now."""

    results: Array[InitializeShareGroupStateResponseTopic]
