"""Transactions in `__transaction_state`."""

from penstock.core.wire.message import Message, Part, message, part
from penstock.core.wire.schema import tagged
from penstock.core.wire.types import Array, Int8, Int16, Int32, Int64, NullableArray, String


@message(versions=range(1))
class TransactionLogKey(Message):
    """Keys the state of a transactional id."""

    transactional_id: String


@part
class TransactionLogValueTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic: String
    partition_ids: Array[Int32]


@message(versions=range(2), flexible_from=1)
class TransactionLogValue(Message):
    """A transactional id: its producer, and how far its transaction has got."""

    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, since=1, default=-1)
    next_producer_id: Int64 = tagged(1, since=1, default=-1)
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: NullableArray[TransactionLogValueTopicPartitions]
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, since=1, default=0)
