"""How one connection is kept from taking more than its share."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.model import MILLISECOND, Instant
from penstock.core.wire import RequestHeader, request_frame
from penstock.core.wire.kafka.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.wire.kafka.registry import APIS
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.connection import Connection, ConnectionLimits
from penstock.gateways.kafka.door import Door, Serving
from penstock.gateways.kafka.metrics import KafkaMetrics
from penstock.gateways.kafka.routes import Routes
from penstock.runtime import Runtime
from penstock.runtime.pipes import Budget, Part

REQUESTS = 40


class Loop:
    """Time passes with every request; what shall happen soon happens when the test turns the loop."""

    def __init__(self) -> None:
        self.now_ns = 1
        self._soon: list[Callable[[], None]] = []

    def now(self) -> Instant:
        return Instant(self.now_ns)

    def soon(self, fire: Callable[[], None]) -> None:
        self._soon.append(fire)

    def turn(self) -> bool:
        """Whether there was something to do."""
        waiting, self._soon = self._soon, []
        for fire in waiting:
            fire()
        return bool(waiting)


class Pipe:
    """Counts answers; a client that does not read leaves them pending."""

    peer, local = "127.0.0.1:5", ("127.0.0.1", 9092)

    def __init__(self, *, reads: bool = True) -> None:
        self.answers = 0
        self.pending_bytes = self.sent_bytes = 0
        self.is_paused = False
        self._reads = reads

    def write(self, parts: list[Part]) -> None:
        self.answers += len(parts)
        if not self._reads:
            self.pending_bytes += sum(len(cast("bytes", part)) for part in parts)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self) -> None: ...


class Bench:
    def __init__(self, pipe: Pipe, limits: ConnectionLimits | None = None) -> None:
        self.loop, self.pipe = Loop(), pipe
        routes = Routes()

        @routes.handles(ApiVersionsRequest)
        def answer(request: ApiVersionsRequest, call: Call) -> None:
            self.loop.now_ns += MILLISECOND
            call.reply(ApiVersionsResponse(error_code=0, api_keys=()))

        runtime = cast("Runtime", SimpleNamespace(clock=self.loop, timers=self.loop))
        serving = Serving(
            backend=cast("Any", None),
            gate=None,
            routes=routes,
            runtime=runtime,
            metrics=KafkaMetrics(),
            fetch_sessions=cast("Any", None),
            budget=Budget(self.loop.soon),
            report=lambda error: None,
            limits=limits or ConnectionLimits(),
        )
        self.connection = Connection(pipe, Door("PLAINTEXT", serving))

    def receive(self, requests: int) -> None:
        """Let so many requests arrive together."""
        api_key = ApiVersionsRequest.__schema__.api_key
        assert api_key is not None
        one = request_frame(APIS[api_key], RequestHeader(api_key, 0, 1, "test"), ApiVersionsRequest())
        stream = bytes(one) * requests
        self.connection.buffer()[: len(stream)] = stream
        self.connection.received(len(stream))


def test_requests_that_came_together_are_served_over_several_turns_and_all_answered() -> None:
    pipe = Pipe()
    bench = Bench(pipe)

    bench.receive(REQUESTS)
    at_once = pipe.answers
    assert pipe.is_paused
    turns = 0
    while bench.loop.turn():
        turns += 1

    assert 0 < at_once < REQUESTS
    assert turns > 1
    assert pipe.answers == REQUESTS
    assert not pipe.is_paused


def test_a_few_requests_are_served_in_one_turn() -> None:
    pipe = Pipe()
    bench = Bench(pipe)

    bench.receive(3)

    assert pipe.answers == 3
    assert not pipe.is_paused
    assert not bench.loop.turn()


def test_a_client_that_does_not_read_is_not_served_until_it_does() -> None:
    pipe = Pipe(reads=False)
    bench = Bench(pipe, ConnectionLimits(pending_bytes_max=10))

    bench.receive(REQUESTS)
    while bench.loop.turn():
        pass
    unread = pipe.answers
    assert pipe.is_paused
    pipe.pending_bytes = 0
    bench.connection.drained()
    while bench.loop.turn():
        pass

    assert unread < REQUESTS
    assert unread < pipe.answers < REQUESTS


@pytest.mark.parametrize("requests", [1, REQUESTS])
def test_nothing_is_served_to_a_connection_that_is_over(requests: int) -> None:
    pipe = Pipe()
    bench = Bench(pipe)
    bench.receive(requests)
    answers = pipe.answers

    bench.connection.closed()
    while bench.loop.turn():
        pass

    assert pipe.answers == answers
