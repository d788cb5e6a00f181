"""SaslHandshake: agreeing on a SASL mechanism."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Array, Int16, String


@message(api_key=17, versions=range(2))
class SaslHandshakeRequest(Message):
    """Sent by a client first thing on a SASL listener, naming its mechanism."""

    mechanism: String


@message(api_key=17, versions=range(2))
class SaslHandshakeResponse(Message):
    """Sent by the broker: whether it speaks that mechanism, and which it does."""

    error_code: Int16
    mechanisms: Array[String]
