"""What a stream may have under way: bytes to publish, and messages that its client did not settle."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.cluster import RecordPosition
from penstock.server.gateway.memory import MemoryBudget
from penstock.server.grpc.options import GrpcOptions
from penstock.server.grpc.publisher import ByteWindow, MessagePublisher
from penstock.server.grpc.subscriptions import InFlight
from penstock.v1 import penstock_pb2 as proto


async def settled(*tasks: "asyncio.Task[Any]") -> list[bool]:
    """Which tasks are done once the loop has nothing more to do."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_window_lets_in_what_fits_in_the_order_of_arrival() -> None:
    async def test() -> None:
        window = ByteWindow(100)
        async with asyncio.TaskGroup() as tasks:
            await window.enter(60)
            large = tasks.create_task(window.enter(50))
            small = tasks.create_task(window.enter(10))
            assert await settled(large, small) == [False, False]

            window.leave(60)
            assert await settled(large, small) == [True, True]

    run(test())


def test_what_is_larger_than_a_window_waits_until_it_is_empty() -> None:
    async def test() -> None:
        window = ByteWindow(100)
        async with asyncio.TaskGroup() as tasks:
            await window.enter(1)
            huge = tasks.create_task(window.enter(1_000))
            assert await settled(huge) == [False]

            window.leave(1)
            assert await settled(huge) == [True]

    run(test())


def test_whoever_stops_waiting_for_a_window_makes_way() -> None:
    async def test() -> None:
        window = ByteWindow(100)
        async with asyncio.TaskGroup() as tasks:
            await window.enter(60)
            large = tasks.create_task(window.enter(100))
            small = tasks.create_task(window.enter(40))
            assert await settled(large, small) == [False, False]

            large.cancel()
            assert await settled(large, small) == [True, True]

    run(test())


def test_a_place_that_was_given_to_one_who_has_gone_is_free_again() -> None:
    async def test() -> None:
        window = ByteWindow(100)
        async with asyncio.TaskGroup() as tasks:
            await window.enter(100)
            gone = tasks.create_task(window.enter(100))
            await settled(gone)

            window.leave(100)
            gone.cancel()
            await settled(gone)

            await asyncio.wait_for(window.enter(100), 10)

    run(test())


class StreamOfOne:
    """A stream whose client sends one request, says that it was the last, and reads or does not."""

    def __init__(self, *, is_read: bool) -> None:
        self.written: list[Any] = []
        self._requests = [proto.PublishRequest(topic="t", value=bytes(1_000))]
        self._is_read = is_read

    async def requests(self) -> AsyncIterator[Any]:
        while self._requests:
            yield self._requests.pop()

    async def write(self, response: Any) -> None:
        if not self._is_read:
            await asyncio.Event().wait()
        self.written.append(response)


@pytest.mark.parametrize("stalled", ["topic", "publish", "write"])
def test_a_stream_that_was_cancelled_leaves_its_room_to_the_others(stalled: str) -> None:
    async def test() -> None:
        never = asyncio.Event()

        async def topic(_name: str, *, create: bool) -> None:
            if stalled == "topic" and create:
                await never.wait()

        async def publish(_topic: str, _records: Any, *, acks: int) -> list[Any]:
            if stalled == "publish" and acks:
                await never.wait()
            return [RecordPosition(0, 0, 0)]

        backend: Any = SimpleNamespace(
            cluster=SimpleNamespace(topic=topic),
            publisher=SimpleNamespace(publish=publish),
            memory=MemoryBudget(1 << 20),
        )
        publisher = MessagePublisher(backend, lambda: 0, GrpcOptions(publish_bytes_max=1_000))
        left = StreamOfOne(is_read=stalled != "write")
        gone = asyncio.get_running_loop().create_task(publisher.stream(left.requests(), left))
        assert await settled(gone) == [False]
        gone.cancel()
        await asyncio.wait([gone])

        never.set()
        other = StreamOfOne(is_read=True)
        await asyncio.wait_for(publisher.stream(other.requests(), other), 10)
        assert len(other.written) == 1

    run(test())


def test_there_is_room_when_messages_are_settled() -> None:
    async def test() -> None:
        owners: dict[str, InFlight] = {}
        stream = InFlight(2, owners)
        stream.add(["a", "b"], asyncio.get_running_loop().time(), 600)
        async with asyncio.TaskGroup() as tasks:
            room = tasks.create_task(stream.room())
            assert await settled(room) == [False]

            owners["a"].settle("a")
            assert await settled(room) == [True]

        assert room.result() == 1
        assert list(owners) == ["b"]

    run(test())


def test_there_is_room_when_leases_have_ended() -> None:
    async def test() -> None:
        owners: dict[str, InFlight] = {}
        stream = InFlight(2, owners)
        now = asyncio.get_running_loop().time()
        stream.add(["a"], now - 30, 30)
        stream.add(["b"], now, 600)

        assert await asyncio.wait_for(stream.room(), 10) == 1
        assert list(owners) == ["b"]

    run(test())


def test_a_renewed_message_stays_in_flight() -> None:
    async def test() -> None:
        owners: dict[str, InFlight] = {}
        stream = InFlight(2, owners)
        now = asyncio.get_running_loop().time()
        stream.add(["a", "b"], now - 29, 30)

        stream.renew("a", now + 600, None)
        stream.renew("b", now, 0)

        assert await asyncio.wait_for(stream.room(), 10) == 1
        assert list(owners) == ["a"]

    run(test())


def test_what_is_left_at_the_end_is_in_flight_no_more() -> None:
    async def test() -> None:
        owners: dict[str, InFlight] = {}
        stream = InFlight(2, owners)
        stream.add(["a", "b"], asyncio.get_running_loop().time(), 600)

        assert stream.take_all() == ["a", "b"]
        assert (stream.take_all(), owners) == ([], {})

    run(test())
