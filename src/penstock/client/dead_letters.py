"""Where messages go that nobody could handle: a topic, with their origin and the reason in headers.

The record is the message as it was read, in bytes, with its own headers first.
"""

from collections.abc import Mapping
from typing import Any

from penstock.client.message import Message, RawMessage
from penstock.client.sync_producer import DeliveryFuture, Producer

ORIGIN_TOPIC = "penstock-origin-topic"
ORIGIN_PARTITION = "penstock-origin-partition"
ORIGIN_OFFSET = "penstock-origin-offset"
ORIGIN_TIMESTAMP = "penstock-origin-timestamp"
ERROR = "penstock-error"


class DeadLetters:
    """A topic for dead letters, and a producer for it."""

    def __init__(self, topic: str, properties: Mapping[str, Any]) -> None:
        self.topic = topic
        self._producer = Producer(properties)

    def send(self, message: RawMessage, error: BaseException) -> DeliveryFuture:
        """Send a message that was given up because of `error`."""
        return self._producer.send(
            self.topic, message.value, message.key, headers=[*message.headers, *origin(message, error)]
        )

    def close(self) -> None:
        self._producer.close()


def origin(message: Message[Any, Any], error: BaseException) -> list[tuple[str, bytes]]:
    """Where a message stood, and what is wrong with it."""
    found = {
        ORIGIN_TOPIC: message.topic,
        ORIGIN_PARTITION: message.partition,
        ORIGIN_OFFSET: message.offset,
        ORIGIN_TIMESTAMP: message.timestamp_ms,
        ERROR: f"{type(error).__name__}: {error}",
    }
    return [(name, str(value).encode()) for name, value in found.items() if value is not None]
