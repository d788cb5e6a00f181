"""BatchCommit: committing many transactions at once. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
)


@part
class BatchCommitRequestTransaction(Part):
    """An open transaction, and the producer that wrote in it."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16


@message(api_key=10_000, versions=range(1), flexible_from=0)
class BatchCommitRequest(Message):
    """Sent by the driver of a job to any broker, when all its tasks have written.

    The transactional ids have the form `<sink>#<task>`.
    """

    sink: String
    batch: String
    transactions: Array[BatchCommitRequestTransaction]


@message(api_key=10_000, versions=range(1), flexible_from=0)
class BatchCommitResponse(Message):
    """Sent once the outcome is durable: all transactions are committed, or none.

    `is_repeat`: the batch was committed before, and the transactions of this request are not part of it.
    """

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    is_repeat: Bool = False
