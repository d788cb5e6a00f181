"""Messages as JSON, and as records.

    {"key": "k", "value": {"any": "JSON"}, "headers": {"name": "text"}, "partition": 0}
    {"key_base64": "/w==", "value_base64": "AAE=", "headers": {"name": {"base64": "/w=="}}}

A value that is JSON is stored as the very text the client sent, and a stored value that is JSON is returned
as JSON; any other travels as base64. `"value": null` is a record without a value, as compacted topics use to
delete a key. Keys and headers are text, or base64 where they are not UTF-8. Of headers with the same name,
the last one is shown: it is the one that counts.
"""

import base64
import binascii
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.client.cluster import ClusterError
from penstock.client.cluster.publisher import OutgoingRecord
from penstock.core.delays import DelayOptions
from penstock.core.protocol import ErrorCode
from penstock.core.queues.record_headers import PRIORITY, TTL_MS
from penstock.core.records import Record
from penstock.runtime.loop import MachineClock
from penstock.server.http.operations import RestAnswer, RestStruct
from penstock.server.http.problem import ProblemBody, invalid, not_utf_8

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# Until the year 33,658, which is as far as queues read.
TIME_MS_MAX = 10**15 - 1
HEADERS_MAX = 1_000
DELAY_MS_MAX = DelayOptions().delay_ms_max
TOO_LATE = f"a message is delayed by {DELAY_MS_MAX // 86_400_000} days at most"
ACKS = {"none": 0, "leader": 1, "all": -1}
NO_VALUE = msgspec.Raw(b"")
NULL = b"null"
Acks = Literal["none", "leader", "all"]
_RAW = msgspec.json.Decoder(msgspec.Raw)


class Base64Text(RestStruct, frozen=True):
    """Bytes that are not text."""

    base64: str


HeaderValue = str | Base64Text | None


class MessageBody(RestStruct, frozen=True):
    """A message to publish: `value` or `value_base64`, and what queues should know about it."""

    key: str | None = None
    key_base64: str | None = None
    # Not a plain default: a schema cannot show it.
    value: msgspec.Raw = msgspec.field(default_factory=lambda: NO_VALUE)
    value_base64: str | None = None
    headers: Annotated[dict[str, HeaderValue], Meta(max_length=HEADERS_MAX)] = msgspec.field(
        default_factory=dict
    )
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None
    deliver_at: (
        Annotated[int, Meta(ge=0, le=TIME_MS_MAX, description="Milliseconds since 1970, or a date and time.")]
        | Annotated[datetime, Meta(tz=True)]
        | None
    ) = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    ttl_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None


class PublishBody(MessageBody, frozen=True):
    """A message to publish, and who must have it before the response; in a batch, instead of the batch's."""

    acks: Acks | None = None


class ProduceBody(PublishBody, frozen=True):
    """A message and its topic, which may be left out where `rest.default_topic` is set."""

    topic: str | None = None


class PublishAnswer(RestAnswer, frozen=True):
    """Where a message was stored; `offset` is null with `acks` none, and a delayed message has `delay_id`."""

    partition: int | UnsetType = UNSET
    offset: int | UnsetType | None = UNSET
    timestamp: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    delay_id: str | UnsetType = UNSET
    deliver_at: int | UnsetType = UNSET


class BatchResult(PublishAnswer, frozen=True):
    """What became of a message of a batch: as if it had been alone, or why it was not stored."""

    error: ProblemBody | UnsetType = UNSET


class MessageView(RestAnswer, frozen=True):
    """A message that was read; of `key` and `key_base64`, `value` and `value_base64`, it has one each."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    value: msgspec.Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    headers: dict[str, Any] = msgspec.field(default_factory=dict)


def outgoing(message: MessageBody, where: str = "") -> OutgoingRecord:
    """The record of a message; `where` stands before the name of a field in an error."""
    key = None if message.key is None else message.key.encode()
    if message.key_base64 is not None:
        key = _binary_key(message.key, message.key_base64, where)
    value: bytes | None = bytes(message.value)
    if message.value_base64 is not None:
        if value:
            raise invalid(f"{where}value_base64", "a message has `value` or `value_base64`, not both")
        value = _decode(message.value_base64, f"{where}value_base64")
    elif not value:
        raise invalid(f"{where}value", "a message has a `value` or a `value_base64`")
    elif value == NULL:
        value = None
    elif not value.isascii():
        _check_text(value, f"{where}value")
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if message.headers or message.priority is not None or message.ttl_ms is not None:
        headers = _headers(message, where)
    return OutgoingRecord(key, value, headers, message.partition)


def _headers(message: MessageBody, where: str) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    for name, value in message.headers.items():
        if isinstance(value, str):
            found.append((name, value.encode()))
        elif value is None:
            found.append((name, None))
        else:
            found.append((name, _decode(value.base64, f"{where}headers.{name}.base64")))
    if message.priority is not None:
        found.append((PRIORITY, b"%d" % message.priority))
    if message.ttl_ms is not None:
        found.append((TTL_MS, b"%d" % message.ttl_ms))
    return tuple(found)


def _binary_key(text: str | None, encoded: str, where: str) -> bytes:
    if text is not None:
        raise invalid(f"{where}key_base64", "a message has `key` or `key_base64`, not both")
    return _decode(encoded, f"{where}key_base64")


def _check_text(value: bytes, field: str) -> None:
    """What msgspec did not decode it did not check either."""
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise not_utf_8(error, field) from None


def _decode(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(field, "this is not base64") from None


class TimedMessage(Protocol):
    """A message that may be for later."""

    @property
    def delay_ms(self) -> int | None: ...

    @property
    def deliver_at(self) -> int | datetime | None: ...


def deliver_at_ms(message: TimedMessage, where: str = "") -> int | None:
    """When a message is to be published; None is now."""
    if message.delay_ms is None and message.deliver_at is None:
        return None
    if message.delay_ms is not None and message.deliver_at is not None:
        raise invalid(f"{where}deliver_at", "a message has `delay_ms` or `deliver_at`, not both")
    now = int(MachineClock().wall())
    if message.delay_ms is not None:
        if message.delay_ms > DELAY_MS_MAX:
            raise invalid(f"{where}delay_ms", TOO_LATE)
        return now + message.delay_ms
    due = message.deliver_at
    if isinstance(due, datetime):
        due = max(0, int(due.timestamp() * 1_000))
    if due is not None and due > now + DELAY_MS_MAX:
        raise invalid(f"{where}deliver_at", TOO_LATE)
    return due


def refused_field(error: ClusterError) -> str | None:
    """The field of a message that the cluster has refused it for, as far as that is known."""
    if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return "topic"
    if error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return "key" if "chooses no partition" in error.detail else None
    return "partition" if "no partition" in error.detail else None


def message_view(topic: str, partition: int, record: Record) -> MessageView:
    """A record that was read, as JSON."""
    key, value = record.key, record.value
    return MessageView(
        id=f"{topic}/{partition}/{record.offset}",
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        headers=header_views(record.headers),
        **key_fields(key),
        **value_fields(value),
    )


def key_fields(key: bytes | None) -> dict[str, Any]:
    """`key`, or `key_base64` where it is not text."""
    if key is None:
        return {"key": None}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": base64.b64encode(key).decode()}


def value_fields(value: bytes | None) -> dict[str, Any]:
    """`value`, or `value_base64` where it is not JSON."""
    if value is None:
        return {"value": msgspec.Raw(NULL)}
    try:
        # What is skipped is not decoded, and so not checked to be UTF-8.
        value.decode()
        return {"value": _RAW.decode(value)}
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return {"value_base64": base64.b64encode(value).decode()}


def header_views(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, Any]:
    """Headers by name: text, null, or an object with `base64`."""
    found: dict[str, Any] = {}
    for name, value in headers:
        try:
            found[name] = None if value is None else value.decode()
        except UnicodeDecodeError:
            assert value is not None
            found[name] = {"base64": base64.b64encode(value).decode()}
    return found
