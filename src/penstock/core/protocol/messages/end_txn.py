"""EndTxn: committing or aborting a transaction."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Bool, Int16, Int32, Int64, String, since


@message(api_key=26, versions=range(6), flexible_from=3)
class EndTxnRequest(Message):
    """Sent by a transactional producer to end the transaction it is in."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message(api_key=26, versions=range(6), flexible_from=3)
class EndTxnResponse(Message):
    """Sent by the transaction coordinator once the outcome is durable.

    From version 5 on with the id and epoch for the next one.
    """

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
