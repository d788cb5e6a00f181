"""RenewDelegationToken: keeping a token alive."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Bytes, Int16, Int32, Int64


@message(api_key=39, versions=range(3), flexible_from=2)
class RenewDelegationTokenRequest(Message):
    """Sent by the owner or a renewer of a token."""

    hmac: Bytes
    renew_period_ms: Int64


@message(api_key=39, versions=range(3), flexible_from=2)
class RenewDelegationTokenResponse(Message):
    """Sent by the broker: when the token now ends."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
