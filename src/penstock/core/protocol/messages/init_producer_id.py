"""InitProducerId: starting an idempotent or transactional producer."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Bool, Int16, Int32, Int64, NullableString, since


@message(api_key=22, versions=range(7), flexible_from=2)
class InitProducerIdRequest(Message):
    """Sent by a producer to get an id, and by a transactional one to fence its predecessor."""

    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable_2pc: Bool = since(6, default=False)
    keep_prepared_txn: Bool = since(6, default=False)


@message(api_key=22, versions=range(7), flexible_from=2)
class InitProducerIdResponse(Message):
    """Sent by the transaction coordinator (any broker, without a transactional id).

    The id and epoch to produce with.
    """

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
