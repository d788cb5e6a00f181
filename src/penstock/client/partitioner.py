"""Which partition a record goes to.

    "key-hash"      murmur2 of the key, as the Java client and every server of Penstock compute it; records
                    without a key stay with one partition for a moment, which fills batches. The default
    "round-robin"   one partition after the other, whatever the key
    "sticky"        the same partition for a while, then the next, whatever the key: the fullest batches
    a callable      (topic, key, partitions) -> partition

librdkafka knows the first; the others are chosen here, which needs the number of partitions.
librdkafka's own names (`murmur2_random`, `consistent_random` …) are taken as they are.
"""

import time
from collections.abc import Callable
from typing import Any

from penstock.client.endpoint import BrokerUnreachable, ClientError, reason

Partitioner = Callable[[str, bytes | None, int], int]

# How long the number of a topic's partitions is believed.
COUNT_SECONDS = 60.0
LOOKUP_SECONDS = 10.0
LOOKUP_TURN_SECONDS = 0.1
STICKY_RECORDS = 1_000
STICKY_SECONDS = 0.01


class RoundRobin:
    """One partition after the other."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, _key: bytes | None, partitions: int) -> int:
        number = self._next.get(topic, 0)
        self._next[topic] = number + 1
        return number % partitions


class Sticky:
    """The same partition for so many records or so long, then the next."""

    def __init__(
        self,
        records: int = STICKY_RECORDS,
        seconds: float = STICKY_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._records = records
        self._seconds = seconds
        self._clock = clock
        # Of each topic: the partition, the records it had, and since when.
        self._current: dict[str, tuple[int, int, float]] = {}

    def __call__(self, topic: str, _key: bytes | None, partitions: int) -> int:
        now = self._clock()
        number, records, since = self._current.get(topic, (0, 0, now))
        if records >= self._records or now - since >= self._seconds:
            number, records, since = number + 1, 0, now
        self._current[topic] = (number, records + 1, since)
        return number % partitions


def key_hash(_topic: str, key: bytes | None, partitions: int) -> int:
    """Where the Java client puts a key; for partitioners that fall back on it. No key is partition 0."""
    from penstock.core.records.partitioner import murmur2_partition

    return 0 if key is None else murmur2_partition(key, partitions)


def choose(partitioner: str | Partitioner | None) -> tuple[str | None, Partitioner | None]:
    """The name for librdkafka, or a function of ours; both None if nothing was asked for."""
    if partitioner is None or callable(partitioner):
        return None, partitioner
    match partitioner.replace("_", "-"):
        case "key-hash":
            return "murmur2_random", None
        case "round-robin":
            return None, RoundRobin()
        case "sticky":
            return None, Sticky()
        case _:
            return partitioner, None


class PartitionCounts:
    """How many partitions topics have; asked of the broker, and believed for a while."""

    def __init__(self, client: Any, bootstrap: str) -> None:
        self._client = client
        self._bootstrap = bootstrap
        self._known: dict[str, tuple[int, float]] = {}

    def known(self, topic: str) -> int | None:
        """The count, if it was asked for lately."""
        count, at = self._known.get(topic, (0, 0.0))
        return count if count and time.perf_counter() - at < COUNT_SECONDS else None

    def look_up(self, topic: str) -> int:
        """The count; waits for a broker that is away, and for a topic that is being created."""
        from confluent_kafka import KafkaException

        deadline = time.perf_counter() + LOOKUP_SECONDS
        while True:
            why = "has no partitions"
            try:
                found = self._client.list_topics(topic, timeout=LOOKUP_SECONDS).topics[topic]
            except KafkaException as error:
                raise BrokerUnreachable(
                    f"{self._bootstrap} does not say where topic {topic} is: {reason(error)}"
                ) from None
            if found.error is None and found.partitions:
                self._known[topic] = (len(found.partitions), time.perf_counter())
                return len(found.partitions)
            why = why if found.error is None else reason(found.error)
            if time.perf_counter() > deadline:
                raise ClientError(f"topic {topic} at {self._bootstrap}: {why}")
            time.sleep(LOOKUP_TURN_SECONDS)
