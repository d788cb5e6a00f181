"""Messages handled by several threads: in order per key, committed when finished, never skipped."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.client import (
    Consumer,
    HandlerFailed,
    JsonSerde,
    Message,
    Producer,
    RawMessage,
    StringSerde,
    TopicPartition,
)
from penstock.client.dead_letters import ERROR, ORIGIN_OFFSET, ORIGIN_TOPIC

SECONDS = 30.0
IDLE = 1.0
# Only there to end a test that has failed.
TURNS_MAX = 30


class WatchedConsumer(Consumer):
    """Says when it has paused, and when partitions are being taken away."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.has_paused = threading.Event()
        self.is_revoked = threading.Event()
        super().__init__(*arguments, **settings)

    def _revoked(self, client: Any, revoked: list[Any]) -> None:
        self.is_revoked.set()
        super()._revoked(client, revoked)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        super().pause(partitions)
        self.has_paused.set()


def settings(bootstrap: str, topic: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"g-{topic}",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 100,
    }


def fill(bootstrap: str, topic: str, count: int, keys: int, partition: int | None = None) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number), f"k{number % keys}" if keys else None, partition=partition)


def committed(bootstrap: str, topic: str, partition: int) -> int | None:
    where = TopicPartition(topic, partition)
    with Consumer(settings(bootstrap, topic)) as consumer:
        return consumer.committed([where])[where]


def process_until(
    consumer: Consumer[Any, Any], handle: Callable[[Any], None], enough: Callable[[], bool], **options: Any
) -> int:
    """Process until so much was handled: on a busy machine a group may take longer to form than IDLE."""
    count = 0
    for _ in range(TURNS_MAX):
        count += consumer.process(handle, idle_seconds=IDLE, **options)
        if enough():
            break
    return count


def test_keys_keep_their_order_and_everything_is_committed(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 300, keys=7)
    handled: dict[bytes | None, list[int]] = {}
    threads: set[int] = set()

    def handle(message: RawMessage) -> None:
        threads.add(threading.get_ident())
        handled.setdefault(message.key, []).append(int(message.value or b""))

    with Consumer(settings(bootstrap, topic), topics=topic) as consumer:
        count = process_until(consumer, handle, lambda: sum(map(len, handled.values())) >= 300, workers=4)
        ends = sum(consumer.watermarks(TopicPartition(topic, partition))[1] for partition in (0, 1))

    assert count == ends == 300
    assert handled == {f"k{key}".encode(): list(range(key, 300, 7)) for key in range(7)}
    assert threading.get_ident() not in threads
    assert (committed(bootstrap, topic, 0) or 0) + (committed(bootstrap, topic, 1) or 0) == 300


def test_a_handler_is_called_again_and_then_its_message_becomes_a_dead_letter(
    bootstrap: str, topic: str
) -> None:
    with Producer(bootstrap_servers=bootstrap, partitioner=lambda *_: 0) as producer:
        for value in ("1", "2", "no json", "4"):
            producer.send(topic, value, "k", headers={"trace": value})
    calls: list[object] = []

    def handle(message: Message[str, int]) -> None:
        calls.append(message.value)
        if message.value == 2 and calls.count(2) < 3:
            raise OSError("for a while")
        if message.value == 4:
            raise ValueError("for ever")

    with Consumer(
        settings(bootstrap, topic),
        topics=topic,
        key_deserializer=StringSerde(),
        value_deserializer=JsonSerde(int),
    ) as consumer:
        process_until(
            consumer,
            handle,
            lambda: calls.count(4) >= 3,
            retries=2,
            retry_backoff_ms=1,
            dead_letter_topic=f"{topic}.dead",
        )
    with Consumer(bootstrap_servers=bootstrap) as reader:
        reader.assign({TopicPartition(f"{topic}.dead", partition): 0 for partition in (0, 1)})
        letters = [next(reader), next(reader)]

    assert calls == [1, 2, 2, 2, 4, 4, 4]
    assert committed(bootstrap, topic, 0) == 4
    assert [letter.value for letter in letters] == [b"no json", b"4"]
    assert [letter.key for letter in letters] == [b"k", b"k"]
    assert [letter.header("trace") for letter in letters] == [b"no json", b"4"]
    assert [letter.header(ORIGIN_TOPIC) for letter in letters] == [topic.encode()] * 2
    assert [letter.header(ORIGIN_OFFSET) for letter in letters] == [b"2", b"3"]
    assert letters[1].header(ERROR) == b"ValueError: for ever"


def test_without_a_topic_for_dead_letters_a_handler_that_gives_up_ends_it(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 6, keys=0, partition=0)

    def handle(message: RawMessage) -> None:
        if message.offset == 3:
            raise ValueError("three")

    with (
        pytest.raises(HandlerFailed, match=f"{topic}/0/3: its handler gave up: three") as raised,
        Consumer(settings(bootstrap, topic), topics=topic) as consumer,
    ):
        consumer.process(handle, retries=0, order="partition")

    assert isinstance(raised.value.__cause__, ValueError)
    assert committed(bootstrap, topic, 0) == 3


def test_what_was_not_finished_comes_again_when_processing_goes_on(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 20, keys=4, partition=0)
    handled: list[int] = []
    is_broken = True

    def handle(message: RawMessage) -> None:
        if message.offset == 5 and is_broken:
            raise ValueError("five")
        handled.append(message.offset)

    with Consumer(settings(bootstrap, topic), topics=topic) as consumer:
        with pytest.raises(HandlerFailed):
            consumer.process(handle, retries=0, workers=2, pending_max=8)
        is_broken = False
        process_until(consumer, handle, lambda: len(set(handled)) >= 20, workers=2)

    assert sorted(set(handled)) == list(range(20))
    assert committed(bootstrap, topic, 0) == 20


def test_partitions_are_paused_while_too_much_is_under_way(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 40, keys=0)
    handled: list[int] = []

    with WatchedConsumer(settings(bootstrap, topic), topics=topic) as consumer:

        def handle(message: RawMessage) -> None:
            assert consumer.has_paused.wait(SECONDS)
            handled.append(int(message.value or b""))

        process_until(
            consumer, handle, lambda: len(handled) >= 40, workers=2, pending_max=4, order="none", retries=0
        )

    assert sorted(handled) == list(range(40))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_joins_takes_over_without_a_repeat(bootstrap: str, topic: str, protocol: str) -> None:
    fill(bootstrap, topic, 600, keys=50)
    handled: list[str] = []
    busy = threading.Event()
    member_settings = settings(bootstrap, topic) | {"group.protocol": protocol}
    if protocol == "consumer":
        # These are the broker's to say.
        del member_settings["session.timeout.ms"], member_settings["heartbeat.interval.ms"]

    def member(name: str) -> None:
        with WatchedConsumer(member_settings, topics=topic) as consumer:

            def handle(message: RawMessage) -> None:
                handled.append(message.id)
                if name == "first" and len(handled) >= 100:
                    # Under way, in all workers, while the partitions are taken away.
                    busy.set()
                    assert consumer.is_revoked.wait(SECONDS)

            process_until(consumer, handle, lambda: len(handled) >= 600, workers=4, pending_max=40)

    first = threading.Thread(target=member, args=("first",))
    first.start()
    assert busy.wait(SECONDS)
    second = threading.Thread(target=member, args=("second",))
    second.start()
    for thread in (first, second):
        thread.join(2 * SECONDS)

    assert not first.is_alive()
    assert not second.is_alive()
    assert len(handled) == len(set(handled)) == 600
