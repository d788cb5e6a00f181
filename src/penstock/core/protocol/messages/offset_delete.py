"""OffsetDelete: forgetting a group's positions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Part, String


@part
class OffsetDeleteRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32


@part
class OffsetDeleteRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partitions: Array[OffsetDeleteRequestPartition]


@message(api_key=47, versions=range(1))
class OffsetDeleteRequest(Message):
    """Sent by an administrator, for topics the group does not read any more."""

    group_id: String
    topics: Array[OffsetDeleteRequestTopic]


@part
class OffsetDeleteResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


@part
class OffsetDeleteResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[OffsetDeleteResponsePartition]


@message(api_key=47, versions=range(1))
class OffsetDeleteResponse(Message):
    """Sent by the group coordinator: what became of each position."""

    error_code: Int16
    throttle_time_ms: Int32
    topics: Array[OffsetDeleteResponseTopic]
