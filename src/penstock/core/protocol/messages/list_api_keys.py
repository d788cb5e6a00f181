"""ListApiKeys: which secrets stand for users. An API of Penstock, not of Kafka."""

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
)


@message(api_key=10_021, versions=range(1), flexible_from=0)
class ListApiKeysRequest(Message):
    """Sent by a tool; null asks about every user."""

    user: NullableString = None


@part
class ListApiKeysResponseKey(Part):
    """A key, never its secret. `last_use_ms` is about, and of this broker; -1 if it was not used there."""

    id: String
    user: String
    created_ms: Int64
    expires_ms: Int64
    last_use_ms: Int64
    scope: Array[Int8]
    description: String


@message(api_key=10_021, versions=range(1), flexible_from=0)
class ListApiKeysResponse(Message):
    """Sent by the broker."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    keys: Array[ListApiKeysResponseKey] = ()
