"""SaslAuthenticate: one step of a SASL exchange."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Bytes, Int16, Int64, NullableString, since


@message(api_key=36, versions=range(3), flexible_from=2)
class SaslAuthenticateRequest(Message):
    """Sent by a client after the handshake, as often as its mechanism needs."""

    auth_bytes: Bytes


@message(api_key=36, versions=range(3), flexible_from=2)
class SaslAuthenticateResponse(Message):
    """Sent by the broker: its half of the step, and at the end how long the session may last."""

    error_code: Int16
    error_message: NullableString
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)
