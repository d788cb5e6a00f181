"""A record as a program meets it: read by a consumer, or confirmed to a producer."""

from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple

from penstock.client.record_types import ReadKey as K
from penstock.client.record_types import ReadValue as V

Headers = tuple[tuple[str, bytes | None], ...]
_LOG_APPEND_TIME = 2


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Message(NamedTuple, Generic[K, V]):
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    key: K
    value: V
    headers: Headers = ()
    timestamp_ms: int | None = None
    # Whether the broker set the time when it appended, or the producer did.
    is_append_time: bool = False

    @property
    def id(self) -> str:
        """The record's name in every protocol: topic/partition/offset."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self) -> datetime | None:
        """The record's time in UTC."""
        if self.timestamp_ms is None:
            return None
        return datetime.fromtimestamp(self.timestamp_ms / 1_000, UTC)

    def header(self, name: str) -> bytes | None:
        """The last value of a header; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


RawMessage = Message[bytes | None, bytes | None]


class Delivery(NamedTuple):
    """Where a record was stored."""

    topic: str
    partition: int
    # -1 if nobody was asked for an acknowledgement.
    offset: int
    timestamp_ms: int | None

    @property
    def id(self) -> str:
        """The record's name in every protocol: topic/partition/offset."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def raw_message(message: Any) -> RawMessage:
    """A message of librdkafka, as bytes."""
    kind, timestamp_ms = message.timestamp()
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        timestamp_ms if kind else None,
        kind == _LOG_APPEND_TIME,
    )


def delivery(message: Any) -> Delivery:
    """A delivery report of librdkafka."""
    kind, timestamp_ms = message.timestamp()
    offset = message.offset()
    return Delivery(
        message.topic(), message.partition(), -1 if offset is None else offset, timestamp_ms if kind else None
    )
