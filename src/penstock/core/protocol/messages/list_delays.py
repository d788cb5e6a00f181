"""ListDelays: which records are to be published later. An API of Penstock, not of Kafka."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, NullableString, Part, String


@message(api_key=10_012, versions=range(1), flexible_from=0)
class ListDelaysRequest(Message):
    """Sent to any broker. The order is that of the ids, which is none in time."""

    topic: NullableString = None
    count: Int32 = 500
    # Go on behind this id: `next_after` of the response before.
    after: NullableString = None


@part
class ListDelaysResponseDelay(Part):
    """A record that is to be published later; its bytes are those of the stored record."""

    delay_id: String
    topic: String
    deliver_at_ms: Int64
    size_bytes: Int32


@message(api_key=10_012, versions=range(1), flexible_from=0)
class ListDelaysResponse(Message):
    """Some pending delays. There may be more behind `next_after`, even if there are none here."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    delays: Array[ListDelaysResponseDelay] = ()
    next_after: NullableString = None
