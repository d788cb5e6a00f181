"""UnregisterBroker: forgetting a broker that will not come back."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Int16, Int32, NullableString


@message(api_key=64, versions=range(1), flexible_from=0)
class UnregisterBrokerRequest(Message):
    """Sent by an administrator."""

    broker_id: Int32


@message(api_key=64, versions=range(1), flexible_from=0)
class UnregisterBrokerResponse(Message):
    """Sent by the controller: whether the broker is forgotten."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
