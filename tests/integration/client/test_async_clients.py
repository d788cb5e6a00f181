"""AsyncProducer and AsyncConsumer against a broker."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    DeadlineExceeded,
    DeliveryFailed,
    HandlerFailed,
    RawMessage,
    TopicPartition,
)

SECONDS = 30.0
IDLE = 1.0
# Only there to end a test that has failed.
TURNS_MAX = 30
NOBODY = "127.0.0.1:1"


def settings(bootstrap: str, topic: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}


async def fill(bootstrap: str, topic: str, count: int, keys: int = 0) -> None:
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, str(number), f"k{number % keys}" if keys else None)


def test_records_are_stored_and_read(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, partitioner="round-robin") as producer:
            futures = [await producer.send(topic, str(number)) for number in range(1_000)]
            stored = [await future for future in futures]
            last = await producer.send_and_wait(topic, "1000")
        read: list[bytes] = []
        async with AsyncConsumer(settings(bootstrap, topic), topics=topic) as consumer:
            async for message in consumer:
                read.append(message.value or b"")
                if len(read) == 1_001:
                    break
        async with AsyncConsumer(settings(bootstrap, topic)) as consumer:
            partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            committed = await consumer.committed(partitions)

        assert [one.partition for one in stored] == [0, 1] * 500
        assert last.offset == 500
        assert sorted(read) == sorted(str(number).encode() for number in range(1_001))
        assert committed == dict(zip(partitions, (501, 500), strict=True))

    asyncio.run(scenario())


def test_messages_at_hand_do_not_keep_a_slow_program_from_polling(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.sync_consumer.POLL_SECONDS", 0.0)

    async def scenario() -> None:
        await fill(bootstrap, topic, 20, keys=1)
        async with AsyncConsumer(settings(bootstrap, topic), topics=topic) as consumer:
            first = await consumer.poll(SECONDS)
            polled_at = consumer._consumer._polled_at
            second = await consumer.poll(SECONDS)

            assert consumer._consumer.has_fetched
            assert consumer._consumer._polled_at > polled_at
            assert first is not None
            assert second is not None
            assert (first.value, second.value) == (b"0", b"1")

    asyncio.run(scenario())


def test_a_wait_that_is_cancelled_loses_no_message(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap) as consumer:
            await fill(bootstrap, topic, 1)
            await consumer.assign({TopicPartition(topic, partition): 0 for partition in (0, 1)})
            first = await consumer.poll(SECONDS)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await consumer.poll(None)
            await fill(bootstrap, topic, 3)
            rest = [await consumer.poll(SECONDS) for _ in range(3)]

            assert first is not None
            assert sorted(message.value or b"" for message in rest if message) == [b"0", b"1", b"2"]

    asyncio.run(scenario())


def test_a_consumer_that_cannot_save_at_the_end_leaves_no_thread(bootstrap: str, topic: str) -> None:
    class FullDisk:
        is_transactional = False

        def load(self, _partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
            return {}

        def save(self, _offsets: Mapping[TopicPartition, int]) -> None:
            raise OSError("no space left")

    async def scenario() -> None:
        await fill(bootstrap, topic, 1)
        with pytest.raises(OSError, match="no space left"):
            async with AsyncConsumer(
                settings(bootstrap, topic), topics=topic, offset_store=FullDisk()
            ) as consumer:
                assert await consumer.poll(SECONDS) is not None
        for thread in consumer._thread._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    asyncio.run(scenario())


def test_a_failure_that_nobody_has_awaited_is_raised_at_the_end(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic, 1)
        producer = AsyncProducer(bootstrap_servers=bootstrap)
        awaited = await producer.send(topic, "x", partition=7)
        await producer.send(topic, "x", partition=8)
        with pytest.raises(DeliveryFailed):
            await awaited
        with pytest.raises(DeliveryFailed, match=f"^{topic}: a record was not stored: unknown partition$"):
            await producer.close()
        abandoned = AsyncProducer(bootstrap_servers=NOBODY)
        await abandoned.send(topic, "x")
        with pytest.raises(DeadlineExceeded):
            await abandoned.close(0.1)

    asyncio.run(scenario())


def test_tasks_keep_the_order_of_keys_and_commit_what_is_finished(bootstrap: str, topic: str) -> None:
    handled: dict[bytes | None, list[int]] = {}
    running = peak = 0

    async def handle(message: RawMessage) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        handled.setdefault(message.key, []).append(int(message.value or b""))
        running -= 1

    async def scenario() -> None:
        await fill(bootstrap, topic, 300, keys=7)
        async with AsyncConsumer(settings(bootstrap, topic), topics=topic) as consumer:
            count = 0
            for _ in range(TURNS_MAX):
                # On a busy machine the group may take longer to form than this.
                count += await consumer.process(handle, workers=5, idle_seconds=IDLE)
                if count >= 300:
                    break
            assert count == 300
        async with AsyncConsumer(settings(bootstrap, topic)) as consumer:
            committed = await consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            assert sum(offset or 0 for offset in committed.values()) == 300

    asyncio.run(scenario())
    assert handled == {f"k{key}".encode(): list(range(key, 300, 7)) for key in range(7)}
    assert 1 < peak <= 5


def test_a_handler_that_gives_up_ends_it_and_a_cancelled_process_finishes_what_runs(
    bootstrap: str, topic: str
) -> None:
    finished: list[int] = []

    async def scenario() -> None:
        await fill(bootstrap, topic, 1)
        begun = asyncio.Event()

        async def fail(_message: RawMessage) -> None:
            raise ValueError("never")

        async def slow(message: RawMessage) -> None:
            begun.set()
            await asyncio.sleep(0.05)
            finished.append(message.offset)

        async with AsyncConsumer(settings(bootstrap, topic), topics=topic) as consumer:
            with pytest.raises(HandlerFailed, match="its handler gave up: never"):
                await consumer.process(fail, retries=1, retry_backoff_ms=1)
        async with AsyncConsumer(settings(bootstrap, topic), topics=topic) as consumer:
            process = asyncio.ensure_future(consumer.process(slow))  # noqa: TID251
            await begun.wait()
            process.cancel()
            with pytest.raises(asyncio.CancelledError):
                await process

    asyncio.run(scenario())
    assert finished == [0]
