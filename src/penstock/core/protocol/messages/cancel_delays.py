"""CancelDelays: taking back records that are to be published later. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, NullableString, Part, String


@message(api_key=10_011, versions=range(1), flexible_from=0)
class CancelDelaysRequest(Message):
    """Sent to any broker: do not publish these records. The ids are those that DelayRecords returned."""

    delay_ids: Array[String]


@part
class CancelDelaysResponseResult(Part):
    """The outcome for one id. INVALID_RECORD_STATE: there is no such delay, or its record is published."""

    error_code: Int16 = 0
    error_message: NullableString = None


@message(api_key=10_011, versions=range(1), flexible_from=0)
class CancelDelaysResponse(Message):
    """Sent once that is durable; one result per id, in their order.

    `error_code` is that of the request as a whole: then there are no results.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    results: Array[CancelDelaysResponseResult] = ()
