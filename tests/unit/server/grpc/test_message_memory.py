"""Calls end while messages that are not complete take too much memory."""

import asyncio
from typing import Any

import grpc

from penstock.server.gateway.memory import MemoryBudget, MemoryUsedUp
from penstock.server.grpc.calls import ROOM, IncomingMessages
from penstock.server.grpc.message_memory import VAIN_CHECKS_MAX, MessageMemory
from tests.unit.server.grpc.test_calls import Call, ManualTime, cancel
from tests.unit.server.grpc.test_windows import run, settled

BUDGET = 1_000


class Process:
    """A process that waits for messages, and how large it is."""

    def __init__(self) -> None:
        self.size = 10_000
        self.budget = MemoryBudget(BUDGET)
        self.messages = IncomingMessages()
        self.memory = MessageMemory(self.messages, self.budget, lambda: self.size, lambda: None)

    async def only(self, call: Call) -> Any:
        try:
            return await self.messages.only(call)
        except grpc.aio.AbortError:
            return call.end

    async def each(self, call: Call) -> Any:
        try:
            return [message async for message in self.messages.each(call)]
        except MemoryUsedUp as ended:
            return str(ended)


def test_calls_of_one_address_end_when_the_process_is_too_large_and_streams_at_last() -> None:
    async def test() -> None:
        time, process = ManualTime(), Process()
        loop = asyncio.get_running_loop()
        most = [loop.create_task(process.only(Call("10.0.0.1"))) for _ in range(3)]
        few = loop.create_task(process.only(Call("10.0.0.2")))
        stream = loop.create_task(process.each(Call("10.0.0.1")))
        await settled(*most, few, stream)
        await time.pass_by(2)

        process.size += BUDGET
        process.memory.check()
        assert await settled(*most, few, stream) == [False] * 5

        process.size += 1
        process.memory.check()
        assert await settled(*most, few, stream) == [True, True, True, False, False]
        assert most[0].result() == (grpc.StatusCode.RESOURCE_EXHAUSTED, ROOM)

        process.memory.check()
        assert await settled(few, stream) == [True, False]
        process.memory.check()
        assert await stream == ROOM

    run(test())


def test_requests_that_are_known_are_no_reason_to_end_others() -> None:
    async def test() -> None:
        time, process = ManualTime(), Process()
        waiting = asyncio.get_running_loop().create_task(process.only(Call("10.0.0.1")))
        await settled(waiting)
        await time.pass_by(2)

        process.budget.add(BUDGET)
        process.size += 3 * BUDGET
        process.memory.check()

        assert await settled(waiting) == [False]
        await cancel(waiting)

    run(test())


def test_memory_that_nobody_gives_back_counts_no_more() -> None:
    async def test() -> None:
        time, process = ManualTime(), Process()
        process.size += 5 * BUDGET
        for _ in range(VAIN_CHECKS_MAX):
            process.memory.check()
        waiting = asyncio.get_running_loop().create_task(process.only(Call("10.0.0.1")))
        await settled(waiting)
        await time.pass_by(2)

        process.size += BUDGET // 2
        process.memory.check()

        assert await settled(waiting) == [False]
        await cancel(waiting)

    run(test())


def test_who_sends_so_much_at_once_has_no_second() -> None:
    async def test() -> None:
        process = Process()
        waiting = asyncio.get_running_loop().create_task(process.only(Call("10.0.0.1")))
        await settled(waiting)

        process.size += 2 * BUDGET + 1
        process.memory.check()

        assert await waiting == (grpc.StatusCode.RESOURCE_EXHAUSTED, ROOM)

    run(test())
