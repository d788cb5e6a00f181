"""CreatePartitions: adding partitions to topics."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
)


@part
class CreatePartitionsRequestAssignment(Part):
    """What one member or partition is given."""

    broker_ids: Array[Int32]


@part
class CreatePartitionsRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    count: Int32
    assignments: NullableArray[CreatePartitionsRequestAssignment]


@message(api_key=37, versions=range(4), flexible_from=2)
class CreatePartitionsRequest(Message):
    """Sent by an administrator with the new total of each topic."""

    topics: Array[CreatePartitionsRequestTopic]
    timeout_ms: Int32
    validate_only: Bool


@part
class CreatePartitionsResponseTopic(Part):
    """A topic of the answer."""

    name: String
    error_code: Int16
    error_message: NullableString = None


@message(api_key=37, versions=range(4), flexible_from=2)
class CreatePartitionsResponse(Message):
    """Sent by the broker: whether each topic has grown."""

    throttle_time_ms: Int32
    results: Array[CreatePartitionsResponseTopic]
