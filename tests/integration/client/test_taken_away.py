"""Partitions that are taken away while messages are fetched, from a librdkafka that follows a script."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition as LibrdkafkaTopicPartition

from penstock.client import Consumer, Message, TopicPartition, sync_consumer

TOPIC = "orders"


class Fetched:
    """A message of librdkafka's."""

    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_800_000_000_000

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return 0


class Scripted:
    """Returns what the script says, one entry for each call; a function is a rebalance on the way."""

    def __init__(self, *script: list[Fetched | Callable[[], None]]) -> None:
        self._script = list(script)

    def poll(self, _seconds: float) -> Fetched | None:
        found = self.consume(1, 0)
        return found[0] if found else None

    def consume(self, _records: int, _seconds: float) -> list[Fetched]:
        found = []
        for entry in self._script.pop(0) if self._script else ():
            if isinstance(entry, Fetched):
                found.append(entry)
            else:
                entry()
        return found

    def store_offsets(self, offsets: list[Any]) -> None:
        pass


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    librdkafka = consumer.client
    yield consumer
    librdkafka.close()


def take_away(consumer: Consumer, partition: int) -> Callable[[], None]:
    return lambda: consumer._revoked(None, [LibrdkafkaTopicPartition(TOPIC, partition)])


def ids(messages: list[Message[Any, Any]]) -> list[tuple[int, int]]:
    return [(message.partition, message.offset) for message in messages]


def test_the_first_message_of_a_batch_is_dropped_with_its_partition(consumer: Consumer) -> None:
    consumer.client = Scripted([Fetched(0, 5)], [take_away(consumer, 0), Fetched(1, 8)])

    messages = consumer.poll_batch(10, 0.0)

    assert ids(messages) == [(1, 8)]
    assert consumer.positions() == {TopicPartition(TOPIC, 1): 9}


def test_iteration_goes_on_when_all_that_was_at_hand_is_taken_away(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer.client = Scripted(
        [Fetched(0, 5)], [Fetched(0, 6)], [take_away(consumer, 0)], [], [Fetched(1, 8)], []
    )
    first = next(consumer)
    # A program that took its time with that message.
    monkeypatch.setattr(sync_consumer, "POLL_SECONDS", -1.0)

    following = next(consumer)

    assert ids([first, following]) == [(0, 5), (1, 8)]
