"""Calls under way: how many one address may have, and how long their messages may take.

gRPC counts a call from its first bytes on, whether or not its message ever comes, and refuses everyone when
there are too many (`calls_max`).

    calls of one address          half of all (of IPv6, of a /64)
    a message that does not come  30 s, but in a stream; a second where its address has no place, or three
                                  quarters of all are taken: who waits longest makes room for a new call
"""

import asyncio
import functools
import inspect
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final, TypeAlias

import grpc

from penstock.security.login_limits import network_of
from penstock.server.gateway.memory import MemoryUsedUp
from penstock.server.grpc.callers import host_of

ADDRESS_SHARE: Final = 2
MESSAGE_SECONDS: Final = 30.0
# How long a message may take in any case.
PATIENCE_SECONDS: Final = 1.0
TOO_MANY: Final = "your address has too many calls already"
OVERDUE: Final = "the message did not come in time"
ROOM: Final = "the message did not come while others waited for a place, or for memory"
Handler: TypeAlias = Any
_network = functools.lru_cache(maxsize=4_096)(network_of)


def network_of_call(context: Any) -> str:
    """What counts as the address of a call."""
    return _network(host_of(context))


class IncomingMessages:
    """The messages that calls wait for."""

    def __init__(self) -> None:
        # By network and when the wait began, the longest first: calls with one message, and streams.
        self._waiting: dict[str, dict[asyncio.Timeout, float]] = {}
        self._streams: dict[str, dict[asyncio.Timeout, float]] = {}

    async def only(self, context: Any, seconds: float = MESSAGE_SECONDS) -> Any:
        """The one message of a call; the call is aborted if there is none in time."""
        try:
            message = await _next(self._waiting, context, seconds)
            if message is not grpc.aio.EOF:
                return message
            reason = grpc.StatusCode.INVALID_ARGUMENT, "the call has no message"
        except TimeoutError:
            reason = grpc.StatusCode.DEADLINE_EXCEEDED, OVERDUE
        except MemoryUsedUp as ended:
            reason = grpc.StatusCode.RESOURCE_EXHAUSTED, str(ended)
        await context.abort(*reason)
        raise AssertionError("the call was aborted")

    async def each(self, context: Any) -> AsyncIterator[Any]:
        """The messages of a stream; raises MemoryUsedUp when it has to end."""
        while (message := await _next(self._streams, context, None)) is not grpc.aio.EOF:
            yield message

    def end_most(self, patience_seconds: float) -> int:
        """End the calls of one network that wait for longer, streams last; returns how many."""
        for waiting in (self._waiting, self._streams):
            for network in sorted(waiting, key=lambda one: -len(waiting[one])):
                ended = 0
                while _end_oldest(waiting[network], patience_seconds):
                    ended += 1
                if ended:
                    return ended
        return 0

    def make_room(self, network: str | None = None) -> bool:
        """End the call that has waited longest; of the network with most of them unless one is given."""
        if network is None:
            network = max(self._waiting, key=lambda one: len(self._waiting[one]), default="")
        return _end_oldest(self._waiting.get(network, {}))


def _end_oldest(waiting: dict[asyncio.Timeout, float], patience_seconds: float = PATIENCE_SECONDS) -> bool:
    if not waiting:
        return False
    timeout, since = next(iter(waiting.items()))
    now = asyncio.get_running_loop().time()
    if now - since < patience_seconds:
        return False
    del waiting[timeout]
    timeout.reschedule(now)
    return True


async def _next(
    by_network: dict[str, dict[asyncio.Timeout, float]], context: Any, seconds: float | None
) -> Any:
    """The next message, or EOF; MemoryUsedUp if others needed the room, TimeoutError after `seconds`."""
    network = network_of_call(context)
    waiting = by_network.setdefault(network, {})
    timeout = asyncio.timeout(seconds)
    waiting[timeout] = asyncio.get_running_loop().time()
    try:
        async with timeout:
            return await context.read()
    except TimeoutError:
        if timeout in waiting:
            raise
        raise MemoryUsedUp(ROOM) from None
    finally:
        waiting.pop(timeout, None)
        if not waiting and by_network.get(network) is waiting:
            del by_network[network]


class CallGate(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Counts the calls of each address, and reads the messages of those that have one."""

    def __init__(self, messages: IncomingMessages, calls_max: int) -> None:
        self._messages = messages
        self._address_max = max(1, calls_max // ADDRESS_SHARE)
        self._crowded = calls_max * 3 // 4
        self._calls = 0
        self._by_network: Counter[str] = Counter()
        self._made: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        if self._calls >= self._crowded:
            self._messages.make_room()
        handler = await continuation(details)
        if handler is None:
            return None
        made = self._made.get(details.method)
        if made is None or made[0] is not handler:
            made = self._made[details.method] = handler, streaming(handler, self._serve)
        return made[1]

    async def _serve(self, handler: Handler, _requests: Any, context: Any) -> Any:
        network = network_of_call(context)
        if self._by_network[network] >= self._address_max and not self._messages.make_room(network):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY)
        self._calls += 1
        self._by_network[network] += 1
        try:
            if handler.request_streaming:
                given: Any = self._messages.each(context)
            else:
                given = await self._messages.only(context)
            return await served(handler, given, context)
        except MemoryUsedUp as ended:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(ended))
        finally:
            self._calls -= 1
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]


def streaming(handler: Handler, serve: Any) -> Handler:
    """A handler that gets calls before their messages are read: `serve(handler, requests, context)`."""
    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.response_streaming
        else grpc.stream_unary_rpc_method_handler
    )
    return make(functools.partial(serve, handler), handler.request_deserializer, handler.response_serializer)


async def served(handler: Handler, given: Any, context: Any) -> Any:
    """Serve a call by the function of its kind."""
    inner = (
        (handler.stream_stream if handler.response_streaming else handler.stream_unary)
        if handler.request_streaming
        else (handler.unary_stream if handler.response_streaming else handler.unary_unary)
    )
    answer = inner(given, context)
    if not inspect.isasyncgen(answer):
        return await answer
    async for response in answer:
        await context.write(response)
    return None
