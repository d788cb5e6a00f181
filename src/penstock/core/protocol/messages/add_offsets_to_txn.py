"""AddOffsetsToTxn: bringing a group's positions into a transaction."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Int16, Int32, Int64, String


@message(api_key=25, versions=range(5), flexible_from=3)
class AddOffsetsToTxnRequest(Message):
    """Sent by a producer that will commit consumed offsets inside its transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@message(api_key=25, versions=range(5), flexible_from=3)
class AddOffsetsToTxnResponse(Message):
    """Sent by the transaction coordinator: whether the group's offsets partition is now part of it."""

    throttle_time_ms: Int32
    error_code: Int16
