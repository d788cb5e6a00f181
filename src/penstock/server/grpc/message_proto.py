"""Protobuf messages as records, and records as Protobuf messages."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.client.cluster import ClusterError, OutgoingRecord, RecordPosition
from penstock.client.received import ReceivedRecord
from penstock.core.delays import DelayOptions
from penstock.core.queues.record_headers import PRIORITY, TTL_MS
from penstock.core.records import Record
from penstock.server.grpc.statuses import grpc_status, invalid
from penstock.v1 import penstock_pb2 as proto

PRIORITY_MAX = 9
# As far as queues read, and as long as records are delayed.
TTL_MS_MAX = 10**15 - 1
DELAY_MS_MAX = DelayOptions().delay_ms_max
# Below these a length takes one byte, or two.
ONE_BYTE_LENGTHS, TWO_BYTE_LENGTHS = 1 << 7, 1 << 14
ACKS: dict[int, int] = {
    proto.ACKS_UNSPECIFIED: -1,
    proto.ACKS_NONE: 0,
    proto.ACKS_LEADER: 1,
    proto.ACKS_ALL: -1,
}
# Fields of OutgoingMessage and PublishRequest that few messages have.
_RARE_FIELDS = ("delay_ms", "deliver_at_ms", "priority", "ttl_ms")


class DelayedMessage(NamedTuple):
    """A message for later; a delay counts from when the server reads it."""

    record: OutgoingRecord
    deliver_at_ms: int


class DelayAccepted(NamedTuple):
    """A delayed message is stored, and will be published."""

    delay_id: str


# A topic and a partition.
Place = tuple[str, int]
PublishOutcome = RecordPosition | DelayAccepted | ClusterError


def acks_of(value: int) -> int:
    """How Kafka says it."""
    if value not in ACKS:
        raise invalid(f"acks: {value} is none of ACKS_NONE, ACKS_LEADER, ACKS_ALL")
    return ACKS[value]


def outgoing_of(message: Any, now_ms: int) -> OutgoingRecord | DelayedMessage:
    """The record of an OutgoingMessage or a PublishRequest; raises ClusterError INVALID_REQUEST."""
    has = message.HasField
    partition = message.partition if has("partition") else None
    if partition is not None and partition < 0:
        raise invalid(f"partition: {partition} is negative")
    headers = _headers(message) if message.headers else ()
    key = message.key if has("key") else None
    value = message.value if has("value") else None
    if not any(map(has, _RARE_FIELDS)):
        return OutgoingRecord(key, value, headers, partition)
    record = OutgoingRecord(key, value, headers + _queue_headers(message), partition)
    deliver_at_ms = _deliver_at_ms(message, now_ms)
    return record if deliver_at_ms is None else DelayedMessage(record, deliver_at_ms)


def outgoing_all(
    messages: Iterable[Any], now_ms: int
) -> list[OutgoingRecord | DelayedMessage | ClusterError]:
    """The record of each OutgoingMessage, or why it has none.

    Asking a message which of its fields it has costs more than the rest. Nearly all have a key and a value,
    or a value alone, and one that is as long as these are has nothing else.
    """
    found: list[OutgoingRecord | DelayedMessage | ClusterError] = []
    new = tuple.__new__
    for message in messages:
        key, value = message.key, message.value
        size = len(key) + len(value)
        # The tag and the length of the value, and of the key.
        lengths = 2 if len(value) < ONE_BYTE_LENGTHS else 3
        if key:
            lengths += 2 if len(key) < ONE_BYTE_LENGTHS else 3
        if value and size < TWO_BYTE_LENGTHS and message.ByteSize() == size + lengths:
            found.append(new(OutgoingRecord, (key or None, value, (), None, None)))
            continue
        try:
            found.append(outgoing_of(message, now_ms))
        except ClusterError as error:
            found.append(error)
    return found


def _headers(message: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(
        (header.key, header.value if header.HasField("value") else None) for header in message.headers
    )


def _queue_headers(message: Any) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, bytes | None]] = []
    if message.HasField("priority"):
        if not 0 <= message.priority <= PRIORITY_MAX:
            raise invalid(f"priority: {message.priority} is not between 0 and {PRIORITY_MAX}")
        headers.append((PRIORITY, str(message.priority).encode()))
    if message.HasField("ttl_ms"):
        if message.ttl_ms < 0:
            raise invalid(f"ttl_ms: {message.ttl_ms} is negative")
        if message.ttl_ms > TTL_MS_MAX:
            raise invalid(f"ttl_ms: {message.ttl_ms} is more than {TTL_MS_MAX}")
        headers.append((TTL_MS, str(message.ttl_ms).encode()))
    return tuple(headers)


def _deliver_at_ms(message: Any, now_ms: int) -> int | None:
    if message.HasField("delay_ms"):
        if message.HasField("deliver_at_ms"):
            raise invalid("delay_ms: deliver_at_ms is given as well")
        if message.delay_ms < 0:
            raise invalid(f"delay_ms: {message.delay_ms} is negative")
        if message.delay_ms > DELAY_MS_MAX:
            raise invalid(f"delay_ms: {message.delay_ms} is more than {DELAY_MS_MAX}")
        return now_ms + int(message.delay_ms)
    if message.HasField("deliver_at_ms"):
        if message.deliver_at_ms < 0:
            raise invalid(f"deliver_at_ms: {message.deliver_at_ms} is negative")
        if message.deliver_at_ms > now_ms + DELAY_MS_MAX:
            raise invalid(f"deliver_at_ms: {message.deliver_at_ms} is more than {DELAY_MS_MAX} ms ahead")
        return int(message.deliver_at_ms)
    return None


def fill_result(result: Any, outcome: PublishOutcome) -> None:
    """Write what became of a message into a PublishResult or a PublishResponse."""
    if isinstance(outcome, RecordPosition):
        result.partition = outcome.partition
        result.offset = outcome.offset
        result.timestamp_ms = outcome.timestamp_ms
        return
    result.partition = result.offset = -1
    if isinstance(outcome, DelayAccepted):
        result.delay_id = outcome.delay_id
    else:
        result.error.status = grpc_status(outcome).value[0]
        result.error.code = outcome.code.name
        result.error.message = outcome.detail


def fill_leased(messages: Any, records: Iterable[ReceivedRecord], receipts: Iterable[str]) -> None:
    """Append records of queues, which have these receipts, to a repeated field of Message."""
    add = messages.add
    for record, receipt in zip(records, receipts, strict=True):
        message = add()
        message.topic = record.topic
        message.partition = record.partition
        message.offset = record.offset
        message.timestamp_ms = record.timestamp
        if record.key is not None:
            message.key = bytes(record.key)
        if record.value is not None:
            message.value = bytes(record.value)
        message.receipt = receipt
        message.attempt = record.attempt
        for name, value in record.headers:
            message.headers.add(key=name, value=value)


def fill_logged(messages: Any, place: Place, records: Iterable[Record]) -> None:
    """Append records of a log to a repeated field of Message."""
    add = messages.add
    topic, partition = place
    for offset, timestamp, key, value, headers in records:
        message = add()
        message.topic = topic
        message.partition = partition
        message.offset = offset
        message.timestamp_ms = timestamp
        if key is not None:
            message.key = bytes(key)
        if value is not None:
            message.value = bytes(value)
        for name, content in headers:
            message.headers.add(key=name, value=content)
