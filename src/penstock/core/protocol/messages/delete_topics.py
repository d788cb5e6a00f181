"""DeleteTopics: removing topics."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
    Uuid,
    since,
    until,
)


@part
class DeleteTopicsRequestTopic(Part):
    """A topic that the request is about."""

    name: NullableString = None
    topic_id: Uuid


@message(api_key=20, versions=range(7), flexible_from=4)
class DeleteTopicsRequest(Message):
    """Sent by an administrator; topics are named, or given by id from version 6 on."""

    topics: Array[DeleteTopicsRequestTopic] = since(6, default=())
    topic_names: Array[String] = until(5, default=(), ignorable=True)
    timeout_ms: Int32


@part
class DeleteTopicsResponseTopic(Part):
    """A topic of the answer."""

    name: NullableString = since(0, nullable_from=6)
    topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: NullableString = since(5, default=None, ignorable=True)


@message(api_key=20, versions=range(7), flexible_from=4)
class DeleteTopicsResponse(Message):
    """Sent by the broker: what became of each topic."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    responses: Array[DeleteTopicsResponseTopic]
