"""RotateMasterKey: another master key for a node. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Bool, Int16, Int32, NullableString, String


@message(api_key=10_030, versions=range(1), flexible_from=0)
class RotateMasterKeyRequest(Message):
    """Sent by a tool to any broker, about any node; with `reseal`, old segments are written again as well."""

    node_id: Int32
    reseal: Bool = False


@message(api_key=10_030, versions=range(1), flexible_from=0)
class RotateMasterKeyResponse(Message):
    """Sent once the node goes on with its current key, whether or not that is another one."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    key: String = ""
    is_new: Bool = False
