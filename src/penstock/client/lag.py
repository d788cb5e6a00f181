"""How old the first record is that a group has not read: its lag in seconds."""

from collections.abc import Mapping
from typing import Any

from penstock.client.endpoint import Endpoint, opened
from penstock.core.model import SECOND
from penstock.runtime.clock import MachineClock

TURN_SECONDS = 0.1
PATIENCE_SECONDS = 5


def timestamps_at(endpoint: Endpoint, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """The timestamp of the first record at or after an offset; partitions that do not answer are left out."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    if not offsets:
        return {}
    settings = endpoint.settings(
        group_id="penstock-lag",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        allow_auto_create_topics=False,
        # One batch of each partition is enough.
        max_partition_fetch_bytes=1_024,
        queued_min_messages=1,
    )
    clock = MachineClock()
    deadline = clock.now() + PATIENCE_SECONDS * SECOND
    consumer: Any = opened(Consumer, settings)
    found: dict[tuple[str, int], int] = {}
    waiting = dict.fromkeys(offsets)
    try:
        consumer.assign([TopicPartition(*one, offset) for one, offset in offsets.items()])
        while waiting and clock.now() < deadline:
            for message in consumer.consume(500, TURN_SECONDS):
                _take(message, waiting, found, consumer)
    except KafkaException:
        # The lag in records is known all the same.
        pass
    finally:
        consumer.close()
    return found


def _take(
    message: Any, waiting: dict[tuple[str, int], None], found: dict[tuple[str, int], int], consumer: Any
) -> None:
    from confluent_kafka import TopicPartition

    one = message.topic(), message.partition()
    if one not in waiting:
        return
    del waiting[one]
    consumer.pause([TopicPartition(*one)])
    if message.error() is None and message.timestamp()[0]:
        found[one] = int(message.timestamp()[1])
