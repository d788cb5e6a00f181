"""ExpireDelegationToken: ending a token."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Bytes, Int16, Int32, Int64


@message(api_key=40, versions=range(3), flexible_from=2)
class ExpireDelegationTokenRequest(Message):
    """Sent by the owner or a renewer of a token; a negative period ends it at once."""

    hmac: Bytes
    expiry_time_period_ms: Int64


@message(api_key=40, versions=range(3), flexible_from=2)
class ExpireDelegationTokenResponse(Message):
    """Sent by the broker: when the token now ends."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
