"""How far behind a reader is: its lag in records, and in seconds the age of the first one not read."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.client.endpoint import Endpoint, opened
from penstock.client.offsets import LATEST, offsets_at
from penstock.core.model import SECOND
from penstock.runtime.loop import MachineClock

TURN_SECONDS = 0.1
PATIENCE_SECONDS = 5


class Behind(NamedTuple):
    """How far a reader is behind: in records, and as the age of the first one that it has not read."""

    records: int
    seconds: float | None


def how_far_behind(endpoint: Endpoint, positions: Mapping[tuple[str, int], int]) -> Behind | None:
    """Compare the offsets that a reader will read next with the ends of their partitions.

    Nothing if a partition does not answer; the age is left out where no record gives it.
    """
    from confluent_kafka.admin import AdminClient

    ends = offsets_at(opened(AdminClient, endpoint.settings()), positions, LATEST)
    if ends.keys() != positions.keys():
        return None
    unread = {one: position for one, position in positions.items() if position < ends[one]}
    if not unread:
        return Behind(0, 0.0)
    records = sum(ends[one] - position for one, position in unread.items())
    oldest_ms = min(timestamps_at(endpoint, unread).values(), default=None)
    if oldest_ms is None:
        return Behind(records, None)
    return Behind(records, max(0, MachineClock().wall() - oldest_ms) / 1_000)


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
