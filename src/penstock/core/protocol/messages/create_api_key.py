"""CreateApiKey: letting a secret stand for a user. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Array, Bytes, Int8, Int16, Int32, Int64, NullableString, String


@message(api_key=10_020, versions=range(1), flexible_from=0)
class CreateApiKeyRequest(Message):
    """Sent by a tool to any broker. The secret stays with whoever made it: this has its SHA-256."""

    id: String
    user: String
    digest: Bytes
    # Milliseconds since 1970; -1 is never.
    expires_ms: Int64 = -1
    # Numbers of operations, as access rules have them; none is no restriction.
    scope: Array[Int8] = ()
    description: String = ""


@message(api_key=10_020, versions=range(1), flexible_from=0)
class CreateApiKeyResponse(Message):
    """Sent once the key counts."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
