"""DescribeTransactions: the state of transactions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, Part, String


@message(api_key=65, versions=range(1), flexible_from=0)
class DescribeTransactionsRequest(Message):
    """Sent by a tool to the coordinator of the transactional ids."""

    transactional_ids: Array[String]


@part
class DescribeTransactionsResponseTopic(Part):
    """A topic of the answer."""

    topic: String
    partitions: Array[Int32]


@part
class DescribeTransactionsResponseTransaction(Part):
    """A transaction of the answer."""

    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[DescribeTransactionsResponseTopic]


@message(api_key=65, versions=range(1), flexible_from=0)
class DescribeTransactionsResponse(Message):
    """Sent by the coordinator: state, producer and partitions of each transaction."""

    throttle_time_ms: Int32
    transaction_states: Array[DescribeTransactionsResponseTransaction]
