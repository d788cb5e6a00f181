"""DeleteApiKey: letting a secret stand for nobody any more. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Int16, Int32, NullableString, String


@message(api_key=10_022, versions=range(1), flexible_from=0)
class DeleteApiKeyRequest(Message):
    """Sent by a tool to any broker."""

    id: String


@message(api_key=10_022, versions=range(1), flexible_from=0)
class DeleteApiKeyResponse(Message):
    """Sent once the key counts for nothing."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
