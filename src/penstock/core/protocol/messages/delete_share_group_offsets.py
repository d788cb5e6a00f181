"""DeleteShareGroupOffsets: making a share group forget topics."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, NullableString, Part, String, Uuid


@part
class DeleteShareGroupOffsetsRequestTopic(Part):
    """A topic that the request is about."""

    topic_name: String


@message(api_key=92, versions=range(1), flexible_from=0)
class DeleteShareGroupOffsetsRequest(Message):
    """Sent by an administrator, for a group without members."""

    group_id: String
    topics: Array[DeleteShareGroupOffsetsRequestTopic]


@part
class DeleteShareGroupOffsetsResponseTopic(Part):
    """A topic of the answer."""

    topic_name: String
    topic_id: Uuid
    error_code: Int16
    error_message: NullableString = None


@message(api_key=92, versions=range(1), flexible_from=0)
class DeleteShareGroupOffsetsResponse(Message):
    """Sent by the group coordinator: what became of each topic."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    responses: Array[DeleteShareGroupOffsetsResponseTopic]
