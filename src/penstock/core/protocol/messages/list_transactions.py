"""ListTransactions: which transactions a broker coordinates."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, NullableString, Part, String, since


@message(api_key=66, versions=range(3), flexible_from=0)
class ListTransactionsRequest(Message):
    """Sent by a tool to every broker in turn."""

    state_filters: Array[String]
    producer_id_filters: Array[Int64]
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: NullableString = since(2, default=None)


@part
class ListTransactionsResponseTransaction(Part):
    """A transaction of the answer."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


@message(api_key=66, versions=range(3), flexible_from=0)
class ListTransactionsResponse(Message):
    """Sent by a broker: the transactions it coordinates that pass the filters."""

    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: Array[String]
    transaction_states: Array[ListTransactionsResponseTransaction]
