"""QueueSettle: what became of the records that were received. An API of Penstock, not of Kafka."""

from typing import Final

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, Int64, NullableString, Part, String, Uuid

ACKNOWLEDGE: Final = 0
RELEASE: Final = 1
REJECT: Final = 2
RENEW: Final = 3
# As if the records had not been received: deliver them to others, and do not count this delivery.
RETURN: Final = 4


@part
class QueueSettleRequestLease(Part):
    """Records with consecutive offsets whose receipts differ in nothing else."""

    topic_id: Uuid
    partition: Int32
    token: Int64
    attempt: Int32
    offset: Int64
    count: Int32


@message(api_key=10_002, versions=range(1), flexible_from=0)
class QueueSettleRequest(Message):
    """Sent by a consumer to any broker, with the receipts of records that it holds, or what they say.

    `delay_ms` is for a release: -1 is the backoff of the group's settings. `lease_ms` is for a renewal:
    -1 leaves the duration as it is. A transactional id with a producer makes acknowledgements part of
    that producer's open transaction.
    """

    group_id: String
    consumer: NullableString = None
    action: Int8
    receipts: Array[String] = ()
    leases: Array[QueueSettleRequestLease] = ()
    delay_ms: Int64 = -1
    lease_ms: Int32 = -1
    reason: String = ""
    transactional_id: NullableString = None
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


@part
class QueueSettleResponseResult(Part):
    """What became of one record, or of several that follow each other."""

    count: Int32 = 1
    error_code: Int16
    error_message: NullableString = None


@message(api_key=10_002, versions=range(1), flexible_from=0)
class QueueSettleResponse(Message):
    """Sent when the outcome is durable. `results` has the order of the receipts, then that of the leases.

    It is empty if the whole request was refused.
    """

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    results: Array[QueueSettleResponseResult] = ()
