"""Asking for offsets: where partitions start and end, and what lies at a time."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.client.endpoint import REQUEST_SECONDS
from penstock.client.errors import refused
from penstock.core.model import SECOND
from penstock.runtime.loop import MachineClock

# As ListOffsets spells them.
EARLIEST = -2
LATEST = -1
# The second is how librdkafka says it if none of the partitions it was asked for has one.
WITHOUT_LEADER = ("LEADER_NOT_AVAILABLE", "_NOENT")
# A leader that has just been chosen may not know it yet, and librdkafka does not ask again by itself.
LEADER_CHANGES = ("NOT_LEADER_FOR_PARTITION",)
LEADER_CHANGE_SECONDS = 2
TURN_SECONDS = 0.05


class Watermarks(NamedTuple):
    """The first offset of a partition, and the one that its next record will get."""

    start: int
    end: int


def watermarks(admin: Any, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
    """The offsets of the partitions that have a leader to ask."""
    starts = offsets_at(admin, [(topic, partition) for partition in partitions], EARLIEST)
    ends = offsets_at(admin, [(topic, partition) for partition in partitions], LATEST)
    return {
        partition: Watermarks(starts[topic, partition], ends[topic, partition])
        for partition in partitions
        if (topic, partition) in starts and (topic, partition) in ends
    }


def offsets_at(admin: Any, partitions: Iterable[tuple[str, int]], moment: int) -> dict[tuple[str, int], int]:
    """For each partition the offset at EARLIEST, LATEST or a timestamp in ms.

    -1 is "no record that late", and a partition without a leader is left out.
    """
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    spec = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest()}.get(moment)
    asked = {TopicPartition(*one): spec or OffsetSpec.for_timestamp(moment) for one in partitions}
    if not asked:
        return {}
    found = {}
    clock = MachineClock()
    deadline = clock.now() + LEADER_CHANGE_SECONDS * SECOND
    while asked:
        moving = {}
        for one, future in admin.list_offsets(asked, request_timeout=REQUEST_SECONDS).items():
            try:
                found[one.topic, one.partition] = int(future.result(REQUEST_SECONDS + 5).offset)
            except KafkaException as error:
                name = error.args[0].name()
                if name in LEADER_CHANGES and clock.now() < deadline:
                    moving[TopicPartition(one.topic, one.partition)] = asked[one]
                elif not error.args[0].retriable() and name not in WITHOUT_LEADER + LEADER_CHANGES:
                    raise refused(f"offsets of {one.topic}-{one.partition}", error) from None
        asked = moving
        if asked:
            time.sleep(TURN_SECONDS)
    return found
