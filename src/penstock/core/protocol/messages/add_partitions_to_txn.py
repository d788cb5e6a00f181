"""AddPartitionsToTxn: bringing partitions into a transaction."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int16, Int32, Int64, Part, String, since, until


@part
class AddPartitionsToTxnRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partitions: Array[Int32]


@part
class AddPartitionsToTxnRequestTransaction(Part):
    """A transaction that the request is about."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: Array[AddPartitionsToTxnRequestTopic]


@message(api_key=24, versions=range(6), flexible_from=3)
class AddPartitionsToTxnRequest(Message):
    """Sent by a producer before its first write to a partition in a transaction.

    From version 4 on by brokers, in batches, to verify one.
    """

    transactions: Array[AddPartitionsToTxnRequestTransaction] = since(4, default=())
    v3_and_below_transactional_id: String = until(3, default="")
    v3_and_below_producer_id: Int64 = until(3, default=0)
    v3_and_below_producer_epoch: Int16 = until(3, default=0)
    v3_and_below_topics: Array[AddPartitionsToTxnRequestTopic] = until(3, default=())


@part
class AddPartitionsToTxnResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    partition_error_code: Int16


@part
class AddPartitionsToTxnResponseTopic(Part):
    """A topic of the answer."""

    name: String
    results_by_partition: Array[AddPartitionsToTxnResponsePartition]


@part
class AddPartitionsToTxnResponseTransaction(Part):
    """A transaction of the answer."""

    transactional_id: String
    topic_results: Array[AddPartitionsToTxnResponseTopic]


@message(api_key=24, versions=range(6), flexible_from=3)
class AddPartitionsToTxnResponse(Message):
    """Sent by the transaction coordinator: whether each partition is now part of the transaction."""

    throttle_time_ms: Int32
    error_code: Int16 = since(4, default=0, ignorable=True)
    results_by_transaction: Array[AddPartitionsToTxnResponseTransaction] = since(4, default=())
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnResponseTopic] = until(3, default=())
