"""The gate of a secured node's gRPC server: what strangers may open, for how long, and how much of it.

    Health/Check              open to everybody
    everything else           for somebody: Penstock, Health/Watch, reflection

gRPC counts a call from its first bytes on, whether or not its message ever comes, and refuses everyone when
there are too many (`calls_max`). So a call is looked at before its message is read: whoever says nothing of
itself is refused at once, and calls whose callers are not known yet have half of the places at most, those of
one network an eighth. They are short, too: a failed login takes ten seconds, a Check five.
"""

import functools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from penstock.server.gateway.callers import Caller, Callers, UnknownCaller
from penstock.server.grpc.callers import PENSTOCK, credentials, identify, unless_ended
from penstock.server.grpc.calls import Handler, IncomingMessages, network_of_call, served, streaming

CHECK: Final = "/grpc.health.v1.Health/Check"
SHARE, NETWORK_SHARE = 2, 8
CHECK_SECONDS: Final = 5.0
TOO_MANY: Final = "too many calls of callers that are not known yet"
_HEADERS = ("authorization", "x-api-key")


class StrangersGate(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Calls of those who are not known yet are looked at before their messages are read."""

    def __init__(self, callers: Callers, messages: IncomingMessages, calls_max: int) -> None:
        self._callers = callers
        self._messages = messages
        self._strangers_max = max(1, calls_max // SHARE)
        self._network_max = max(1, calls_max // NETWORK_SHARE)
        self._strangers = 0
        self._by_network: Counter[str] = Counter()

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        method = details.method
        given = [value for key, value in details.invocation_metadata or () if key in _HEADERS]
        if method.startswith(PENSTOCK) and len(given) == 1 and self._callers.has_met(given[0]):
            # Of somebody, who may wait for its own messages; who it is exactly is asked as always.
            return handler
        return streaming(handler, functools.partial(self._serve, method))

    async def _serve(self, method: str, handler: Handler, requests: Any, context: Any) -> Any:
        if method == CHECK:
            return await self._check(handler, context)
        caller = await self._identified(context)
        given = requests if handler.request_streaming else await self._messages.only(context)
        work = served(handler, given, context)
        if method.startswith(PENSTOCK):
            # Looks after its callers by itself.
            return await work
        caller.uses += 1
        try:
            return await unless_ended(caller, work, context)
        finally:
            caller.uses -= 1

    async def _check(self, handler: Handler, context: Any) -> Any:
        async with self._place(context):
            request = await self._messages.only(context, CHECK_SECONDS)
            return await served(handler, request, context)

    async def _identified(self, context: Any) -> Caller:
        try:
            given = credentials(context)
            takes_time = not given.is_empty and self._callers.find(given) is None
        except UnknownCaller:
            takes_time = False
        if not takes_time:
            return await identify(self._callers, context)
        async with self._place(context):
            return await identify(self._callers, context)

    @asynccontextmanager
    async def _place(self, context: Any) -> AsyncIterator[None]:
        """A place among the strangers; the call is aborted if there is none."""
        network = network_of_call(context)
        if self._strangers >= self._strangers_max or self._by_network[network] >= self._network_max:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY)
        self._strangers += 1
        self._by_network[network] += 1
        try:
            yield
        finally:
            self._strangers -= 1
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]
