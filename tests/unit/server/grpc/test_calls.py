"""How many calls an address may have, and messages that do not come."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import grpc

from penstock.server.grpc.calls import OVERDUE, ROOM, TOO_MANY, CallGate, IncomingMessages
from tests.unit.server.grpc.test_windows import run, settled

CALLS_MAX = 8
HALF = CALLS_MAX // 2


class ManualTime:
    """The time of a loop, which goes on when it is told to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._passed = 0.0
        time = self._loop.time
        self._loop.time = lambda: time() + self._passed  # type: ignore[method-assign]

    async def pass_by(self, seconds: float) -> None:
        self._passed += seconds
        await asyncio.sleep(0.001)


class Call:
    """A call of an address, whose message comes when it is given."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.message: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.end: tuple[Any, str] | None = None

    def peer(self) -> str:
        return f"ipv4:{self._host}:50000"

    async def read(self) -> Any:
        return await self.message

    async def abort(self, code: Any, detail: str, _trailing: Any = ()) -> None:
        self.end = code, detail
        raise grpc.aio.AbortError


class Gate:
    """A gate before a function that returns the message."""

    def __init__(self, serve: Callable[[Any, Any], Awaitable[Any]]) -> None:
        self._gate = CallGate(IncomingMessages(), CALLS_MAX)
        self._handler = grpc.unary_unary_rpc_method_handler(serve)

    async def begin(self, call: Call) -> "asyncio.Task[Any]":
        async def handler(_details: Any) -> Any:
            return self._handler

        found = await self._gate.intercept_service(handler, SimpleNamespace(method="/a/b"))

        async def serve() -> Any:
            try:
                return await found.stream_unary(None, call)
            except grpc.aio.AbortError:
                return None

        task = asyncio.get_running_loop().create_task(serve())
        await settled(task)
        return task


async def echo(message: Any, _context: Any) -> Any:
    return message


async def never(_message: Any, _context: Any) -> None:
    await asyncio.Event().wait()


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_an_address_has_half_of_the_calls() -> None:
    async def test() -> None:
        gate = Gate(never)
        mine = [Call("10.0.0.1") for _ in range(HALF + 1)]
        others = Call("10.0.0.2")
        for call in (*mine, others):
            call.message.set_result(b"")
        tasks = [await gate.begin(call) for call in (*mine, others)]

        assert mine[-1].end == (grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY)
        assert [task.done() for task in tasks] == [False] * HALF + [True, False]

        await cancel(tasks[0])
        again = Call("10.0.0.1")
        again.message.set_result(b"")
        tasks.append(await gate.begin(again))
        assert again.end is None
        await cancel(*tasks)

    run(test())


def test_a_message_that_does_not_come_makes_room_for_a_call_of_the_same_address() -> None:
    async def test() -> None:
        time = ManualTime()
        gate = Gate(echo)
        silent = [Call("10.0.0.1") for _ in range(HALF)]
        tasks = [await gate.begin(call) for call in silent]
        early, late = Call("10.0.0.1"), Call("10.0.0.1")
        tasks.append(await gate.begin(early))

        await time.pass_by(2)
        served = await gate.begin(late)
        late.message.set_result(b"hello")

        assert await served == b"hello"
        assert early.end == (grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY)
        assert [call.end for call in silent] == [(grpc.StatusCode.RESOURCE_EXHAUSTED, ROOM), None, None, None]
        await cancel(*tasks)

    run(test())


def test_messages_that_do_not_come_make_room_before_all_places_are_taken() -> None:
    async def test() -> None:
        time = ManualTime()
        gate = Gate(echo)
        silent = [Call(f"10.0.0.{number // 3}") for number in range(CALLS_MAX * 3 // 4)]
        tasks = [await gate.begin(call) for call in silent]

        await time.pass_by(2)
        tasks.append(await gate.begin(Call("10.0.0.9")))
        await settled(*tasks)

        assert [call.end for call in silent if call.end] == [(grpc.StatusCode.RESOURCE_EXHAUSTED, ROOM)]
        await cancel(*tasks)

    run(test())


def test_a_message_has_half_a_minute() -> None:
    async def test() -> None:
        time = ManualTime()
        silent = Call("10.0.0.1")
        task = await Gate(echo).begin(silent)

        await time.pass_by(29)
        assert await settled(task) == [False]
        await time.pass_by(2)

        assert await task is None
        assert silent.end == (grpc.StatusCode.DEADLINE_EXCEEDED, OVERDUE)

    run(test())
