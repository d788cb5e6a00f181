"""Transactions against a broker: together or not at all, fenced, and done again."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Consumer,
    Message,
    Outgoing,
    Producer,
    ProducerFenced,
    TopicPartition,
    transform,
)

SECONDS = 30.0
IDLE = 1.5
# Only there to end a test that has failed.
TURNS_MAX = 30
END = "the end"


def fill(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=0)


def source(bootstrap: str, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"g-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    } | more


def visible(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """What partition 0 of a topic holds, up to its end now."""
    where = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=bootstrap) as producer:
        # Behind every transaction: who reads it has read all that is visible before it.
        end = producer.send(topic, END, partition=0).result(SECONDS)
    with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        consumer.assign({where: 0})
        values: list[str] = []
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{END} was not read"
            if message.offset == end.offset:
                return [value for value in values if value != END]
            values.append((message.value or b"").decode())


def committed(bootstrap: str, topic: str) -> int | None:
    where = TopicPartition(topic, 0)
    with Consumer(source(bootstrap, topic)) as consumer:
        return consumer.committed([where])[where]


def test_a_block_commits_and_an_exception_aborts(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        with producer.transaction() as transaction:
            transaction.send(topic, "a", partition=0)
            transaction.send(topic, "b", partition=0)
        with suppress(ZeroDivisionError), producer.transaction() as transaction:
            transaction.send(topic, "never", partition=0).result(SECONDS)
            raise ZeroDivisionError
        with producer.transaction() as transaction:
            transaction.send(topic, "c", partition=0)
        with pytest.raises(ClientError, match="the transaction has ended"):
            transaction.send(topic, "late")

    assert visible(bootstrap, topic) == ["a", "b", "c"]
    assert visible(bootstrap, topic, "read_uncommitted") == ["a", "b", "never", "c"]


def test_offsets_are_committed_with_the_transaction_or_read_again(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 4)
    read: list[bytes | None] = []

    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        Consumer(source(bootstrap, topic), topics=topic) as consumer,
    ):
        for attempt in range(2):
            try:
                with producer.transaction() as transaction:
                    for message in consumer.poll_batch(2, SECONDS):
                        read.append(message.value)
                        transaction.send(f"{topic}.out", message.value, partition=0)
                    transaction.send_offsets(consumer)
                    if attempt == 0:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                assert committed(bootstrap, topic) is None

    assert committed(bootstrap, topic) == len(read) - len(read) // 2
    assert read[: len(read) // 2] == read[len(read) // 2 :]
    assert visible(bootstrap, f"{topic}.out") == [(value or b"").decode() for value in read[len(read) // 2 :]]


def test_a_zombie_is_fenced(bootstrap: str, topic: str) -> None:
    zombie = Producer(bootstrap_servers=bootstrap, transactional_id=topic)
    transaction = zombie.transaction()
    with transaction:
        transaction.send(topic, "of the zombie", partition=0).result(SECONDS)
        with (
            Producer(bootstrap_servers=bootstrap, transactional_id=topic) as successor,
            successor.transaction() as other,
        ):
            other.send(topic, "of its successor", partition=0)
        with pytest.raises(
            ProducerFenced, match="another producer with this transactional id has taken over"
        ):
            transaction.commit()
    zombie.close(SECONDS)

    assert visible(bootstrap, topic) == ["of its successor"]


def test_consume_transform_produce_is_exactly_once_however_often_it_fails(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 200)
    failures = iter([17, 60, 120])
    failing: list[int] = [next(failures)]

    def double(message: Message[bytes | None, bytes | None]) -> list[Outgoing[Any, Any]]:
        number = int(message.value or b"")
        if failing and number == failing[0]:
            failing[:] = [one for one in [next(failures, None)] if one is not None]
            raise OSError("for once")
        return [Outgoing(f"{topic}.out", str(number), partition=0)] * 2

    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        Consumer(source(bootstrap, topic), topics=topic) as consumer,
    ):
        for _ in range(TURNS_MAX):
            with suppress(OSError):
                transform(consumer, producer, double, records_max=25, idle_seconds=IDLE)
            if committed(bootstrap, topic) == 200:
                break

    assert not failing
    assert visible(bootstrap, f"{topic}.out") == [str(number) for number in range(200) for _ in range(2)]
    assert committed(bootstrap, topic) == 200


def test_a_successor_goes_on_where_an_open_transaction_was_left(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3)
    dead = Producer(bootstrap_servers=bootstrap, transactional_id=topic)
    left_open = dead.transaction()
    left_open.__enter__()
    with Consumer(source(bootstrap, topic), topics=topic) as consumer:
        left_open.send(f"{topic}.out", consumer.poll_batch(1, SECONDS)[0].value, partition=0).result(SECONDS)
        left_open.send_offsets(consumer)

    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        Consumer(source(bootstrap, topic), topics=topic) as consumer,
    ):
        done = 0
        for _ in range(TURNS_MAX):
            done += transform(
                consumer,
                producer,
                lambda message: Outgoing(f"{topic}.out", message.value, partition=0),
                idle_seconds=IDLE,
            )
            if done >= 3:
                break

    assert done == 3
    assert visible(bootstrap, f"{topic}.out") == ["0", "1", "2"]
    dead.close(SECONDS)


def test_a_consumer_that_commits_by_itself_cannot_take_part(bootstrap: str, topic: str) -> None:
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        Consumer({**source(bootstrap, topic), "enable.auto.commit": True}) as consumer,
    ):
        refused = producer.transaction(consumer)
        with refused:
            refused.send(topic, "never", partition=0)
            with pytest.raises(ClientError, match="needs enable_auto_commit=False"):
                refused.commit()
        with producer.transaction() as transaction:
            transaction.send(topic, "a", partition=0)

    assert visible(bootstrap, topic) == ["a"]


def test_a_producer_without_a_transactional_id_has_no_transactions() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")

    with pytest.raises(ClientError, match="transactions need transactional_id="):
        producer.transaction()
    producer.close()


def test_a_transaction_on_the_loop_commits_aborts_and_rewinds(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3)
    seen: list[bytes | None] = []

    async def scenario() -> None:
        async with (
            AsyncProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
            AsyncConsumer(source(bootstrap, topic), topics=topic) as consumer,
        ):
            for attempt in range(2):
                try:
                    async with producer.transaction(consumer) as transaction:
                        for _ in range(3):
                            message = await consumer.poll(SECONDS)
                            assert message is not None
                            seen.append(message.value)
                            await transaction.send(f"{topic}.out", message.value, partition=0)
                        if attempt == 0:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue

    asyncio.run(scenario())

    assert seen == [b"0", b"1", b"2"] * 2
    assert visible(bootstrap, f"{topic}.out") == ["0", "1", "2"]
    assert committed(bootstrap, topic) == 3
