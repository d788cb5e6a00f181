"""How one connection is kept from taking more than its share."""

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.model import MILLISECOND, Instant
from penstock.core.protocol import RequestHeader, request_frame
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.core.protocol.messages.registry import APIS
from penstock.runtime import Runtime
from penstock.runtime.memory_limits import RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import Part
from penstock.security import AclOperation, QuotaType, Resource, ResourceType, Session
from penstock.server.kafka.backend import KafkaMetrics
from penstock.server.kafka.connection import CLIENT_ID_CHARS_MAX, ConnectionLimits, KafkaConnection
from penstock.server.kafka.connection_scheduler import ConnectionScheduler
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.frame_decoder import CONTENDED_BYTES, SCRATCH_BYTES
from penstock.server.kafka.listener import Listener, ListenerContext
from penstock.server.kafka.request import ParkedReply, Request
from penstock.server.kafka.router import Router
from penstock.server.kafka.slice_scheduler import SliceScheduler
from tests.support.recorded_events import recorded_events

REQUESTS = 40


class Loop:
    """Time passes with every request; what shall happen soon happens when the test turns the loop."""

    def __init__(self) -> None:
        self.now_ns = 1
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[Instant, Callable[[], None]]] = []

    def now(self) -> Instant:
        return Instant(self.now_ns)

    def soon(self, fire: Callable[[], None]) -> None:
        self._soon.append(fire)

    def at(self, deadline: Instant, fire: Callable[[], None]) -> None:
        self._later.append((deadline, fire))

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MILLISECOND
        due = [fire for deadline, fire in self._later if deadline <= self.now_ns]
        self._later = [entry for entry in self._later if entry[0] > self.now_ns]
        for fire in due:
            fire()
        while self.turn():
            pass

    def turn(self) -> bool:
        """Whether there was something to do."""
        waiting, self._soon = self._soon, []
        for fire in waiting:
            fire()
        return bool(waiting)


class Pipe:
    """Counts responses; a client that does not read leaves them pending."""

    peer, local = "127.0.0.1:5", ("127.0.0.1", 9092)

    def __init__(self, *, reads: bool = True) -> None:
        self.answers = 0
        self.pending_bytes = self.sent_bytes = self.held_bytes = 0
        self.is_paused = self.is_closed = False
        self._moved: Callable[[int], None] = lambda change: None
        self._reads = reads
        self.inbox = b""
        self.handler: KafkaConnection | None = None

    def account(self, moved: Callable[[int], None]) -> None:
        self._moved = moved

    def write(self, parts: list[Part]) -> None:
        self.answers += len(parts)
        if not self._reads:
            self._hold(self.held_bytes + sum(len(cast("bytes", part)) for part in parts))

    def drain(self) -> None:
        """The client reads everything that is there."""
        self.sent_bytes += self.pending_bytes
        self._hold(0)

    def _hold(self, size: int) -> None:
        change, self.held_bytes, self.pending_bytes = size - self.held_bytes, size, size
        self._moved(change)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def read(self) -> None:
        """Pass on what is in the socket, as far as the connection takes it."""
        assert self.handler is not None
        buffer = self.handler.get_buffer() if self.inbox else None
        if buffer is not None:
            count = min(len(buffer), len(self.inbox))
            buffer[:count], self.inbox = self.inbox[:count], self.inbox[count:]
            self.handler.buffer_updated(count)

    def close(self) -> None:
        self.is_closed = True


class Meter:
    """Lets everybody in, and holds those back who cost too much."""

    def __init__(self) -> None:
        self.throttles_ms: list[int] = []
        self.charged_ns = 0

    def authorize(self, session: Session, operation: AclOperation, resource: Resource) -> bool:
        return True

    def rights_key(self, session: Session) -> None:
        """Nothing is kept by it."""

    def authorize_any(self, session: Session, operation: AclOperation, kind: ResourceType) -> bool:
        return True

    def quota_left(self, session: Session, cost: QuotaType) -> int | None:
        return None

    def charge_connection(self, host: str) -> int:
        return 0

    def charge(self, session: Session, cost: QuotaType, amount: int) -> int:
        assert cost is QuotaType.REQUEST_NS
        self.charged_ns += amount
        return self.throttles_ms.pop(0) if self.throttles_ms else 0


class Bench:
    def __init__(
        self,
        pipe: Pipe,
        limits: ConnectionLimits | None = None,
        answer_bytes_max: int = 1 << 20,
        gate: Meter | None = None,
    ) -> None:
        self.loop, self.tcp = Loop(), pipe
        self.request_memory = RequestMemoryLimit(self.loop.soon)
        self.is_pressed = False
        self.scheduler = ConnectionScheduler(self.loop.soon, self.loop.now, lambda: self.is_pressed)
        # Whether requests need their frames longer than for a call.
        self.keeps = False
        self.response_memory = ResponseMemoryLimit(self.loop.soon, answer_bytes_max)
        # Of one request, and whether it is served in slices.
        self.cost_ns, self.is_sliced = MILLISECOND // 2, False
        # How long it waits, whether it charges the quota itself, and in how many steps it is served.
        self.wait_ms, self.asks_quota, self.steps = 0, True, 1
        routes = self.routes = Router()

        @routes.handles(ApiVersionsRequest)
        def answer(request: ApiVersionsRequest, call: Request) -> None:
            if self.keeps:
                call.connection.keep(self.listener.scratch[:1_000])
            self._serve(call)

        runtime = cast("Runtime", SimpleNamespace(clock=self.loop, timers=self.loop))
        serving = ListenerContext(
            backend=cast("Any", None),
            authorizer=gate,
            routes=routes,
            runtime=runtime,
            metrics=KafkaMetrics(),
            fetch_sessions=FetchSessionCache(runtime.clock, cast("Any", None)),
            request_memory=self.request_memory,
            response_memory=self.response_memory,
            scheduler=self.scheduler,
            slices=SliceScheduler(self.loop.now, self.loop.soon),
            report=lambda error: None,
            limits=limits or ConnectionLimits(),
        )
        self.metrics = serving.metrics
        self.listener = Listener("PLAINTEXT", serving)
        self.connection = self.connect(pipe)

    def _serve(self, call: Request) -> None:
        if self.wait_ms:
            self.loop.now_ns += self.cost_ns
            due = Instant(self.loop.now_ns + self.wait_ms * MILLISECOND)
            self.loop.at(due, partial(self._finish, call))
        elif self.is_sliced:
            call.run(self._work(call))
        else:
            self._finish(call)

    def _finish(self, call: Request) -> None:
        for _ in self._work(call):
            pass

    def _work(self, call: Request) -> Iterator[None]:
        yield
        for _ in range(self.steps):
            self.loop.now_ns += self.cost_ns
            yield
        if self.asks_quota:
            call.charge_time()
        call.reply(ApiVersionsResponse(error_code=0, api_keys=()))

    def connect(self, pipe: Pipe) -> KafkaConnection:
        connection = self.listener.accept(cast("Any", pipe))
        assert isinstance(connection, KafkaConnection)
        pipe.handler = connection
        return connection

    def receive(
        self, requests: int, connection: KafkaConnection | None = None, client_id: str = "test"
    ) -> None:
        """Let so many requests arrive together."""
        connection = connection or self.connection
        pipe = cast("Pipe", connection.tcp)
        api_key = ApiVersionsRequest.__schema__.api_key
        assert api_key is not None
        one = request_frame(APIS[api_key], RequestHeader(api_key, 0, 1, client_id), ApiVersionsRequest())
        pipe.inbox += bytes(one) * requests
        if not pipe.is_paused:
            pipe.read()

    def settle(self) -> None:
        while self.loop.turn():
            pass


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


@pytest.mark.parametrize("is_sliced", [False, True])
def test_a_request_that_held_the_loop_is_named(is_sliced: bool) -> None:
    bench = Bench(Pipe())
    bench.cost_ns, bench.is_sliced = 60 * MILLISECOND, is_sliced

    with recorded_events() as events:
        bench.receive(1, client_id="greedy")
        bench.settle()

    (event,) = events.named("kafka.held_the_loop")
    assert (event["api"], event["client_id"], event["peer"]) == ("ApiVersions", "greedy", "127.0.0.1:5")
    assert (event["ms"], event["requests"]) == (60, 1)


def test_requests_that_hold_the_loop_again_and_again_are_counted_and_the_worst_of_a_second_is_named() -> None:
    bench = Bench(Pipe())

    with recorded_events() as events:
        for cost_ms in (60, 200, 70, 40, 800, 60):
            bench.cost_ns = cost_ms * MILLISECOND
            bench.receive(1)
            bench.settle()

    assert [(event["ms"], event["requests"]) for event in events.named("kafka.held_the_loop")] == [
        (60, 1),
        (800, 3),
    ]
    assert bench.metrics.loop_holds_total.of("ApiVersions").count == 5


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
    pipe.drain()
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


def test_a_connection_is_not_read_while_the_node_keeps_too_much_for_others() -> None:
    deaf, reader = Pipe(reads=False), Pipe()
    bench = Bench(deaf, answer_bytes_max=40)
    other = bench.connect(reader)
    bench.receive(3)
    assert bench.response_memory.is_full

    bench.receive(1, other)
    bench.settle()
    was_paused = reader.is_paused
    deaf.drain()
    bench.connection.drained()
    bench.settle()

    assert was_paused
    assert not reader.is_paused
    assert bench.metrics.held_back.of("answers").count > 0


def test_a_reader_goes_on_while_one_that_does_not_read_has_used_up_its_share() -> None:
    deaf, reader = Pipe(reads=False), Pipe()
    bench = Bench(deaf, answer_bytes_max=1_000)
    other = bench.connect(reader)

    bench.receive(REQUESTS)
    bench.settle()
    bench.receive(3, other)
    bench.settle()

    # A quarter of what is free, and one turn's responses at most beyond.
    assert deaf.is_paused
    assert 100 < bench.response_memory.held_bytes < 400
    assert reader.answers == 3
    assert not reader.is_paused


def test_who_holds_the_node_up_and_does_not_read_is_cut_off_early() -> None:
    deaf, reader = Pipe(reads=False), Pipe()
    bench = Bench(deaf, ConnectionLimits(pressed_ms_max=10), answer_bytes_max=40)
    other = bench.connect(reader)
    bench.receive(3)
    bench.receive(1, other)
    bench.listener.sweep()
    bench.loop.now_ns += 10 * MILLISECOND

    bench.listener.sweep()

    assert deaf.is_closed
    assert not reader.is_closed


def test_a_reader_that_trickles_cannot_keep_the_others_out_for_ever() -> None:
    slow, reader = Pipe(reads=False), Pipe()
    bench = Bench(slow, answer_bytes_max=40)
    bench.connect(reader)
    bench.receive(3)

    for _ in range(3):
        slow.sent_bytes += 1
        bench.listener.sweep()

    assert slow.is_closed
    assert not reader.is_closed


def test_a_connection_that_is_over_holds_nothing_and_waits_for_nothing() -> None:
    deaf, reader = Pipe(reads=False), Pipe()
    bench = Bench(deaf, answer_bytes_max=40)
    other = bench.connect(reader)
    bench.receive(3)
    bench.receive(1, other)
    waiting = bench.response_memory.waiting

    other.closed()
    bench.connection.closed()

    assert waiting == 2
    assert bench.response_memory.waiting == 0


def test_a_client_that_costs_too_much_is_answered_and_then_not_read_for_a_while() -> None:
    pipe, gate = Pipe(), Meter()
    bench = Bench(pipe, gate=gate)
    gate.throttles_ms = [50]

    bench.receive(3)
    bench.settle()
    at_once, paused = pipe.answers, pipe.is_paused
    bench.loop.pass_ms(40)
    early = pipe.answers
    bench.loop.pass_ms(10)

    assert (at_once, early, paused) == (1, 1, True)
    assert pipe.answers == 3
    assert not pipe.is_paused


def test_time_of_the_loop_is_charged_whether_the_handler_does_it_or_not() -> None:
    pipe, gate = Pipe(), Meter()
    bench = Bench(pipe, gate=gate)

    bench.receive(1)
    bench.asks_quota = False
    bench.receive(2)

    assert gate.charged_ns == 3 * bench.cost_ns


def test_time_that_a_request_waits_is_not_charged() -> None:
    pipe, gate = Pipe(), Meter()
    bench = Bench(pipe, gate=gate)
    bench.wait_ms = 30_000

    bench.receive(1)
    bench.loop.pass_ms(40_000)

    assert pipe.answers == 1
    assert gate.charged_ns == bench.cost_ns


def test_all_slices_of_a_request_are_charged_and_nothing_between_them() -> None:
    pipe, gate = Pipe(), Meter()
    bench = Bench(pipe, gate=gate)
    bench.is_sliced, bench.steps = True, 100

    bench.receive(1)
    while not pipe.answers:
        bench.loop.now_ns += MILLISECOND
        bench.loop.turn()

    assert gate.charged_ns == 100 * bench.cost_ns


def test_a_longer_hold_is_not_ended_by_a_shorter_one() -> None:
    pipe = Pipe()
    bench = Bench(pipe)

    bench.connection.throttle(100)
    bench.connection.throttle(10)
    bench.loop.pass_ms(20)
    still = pipe.is_paused
    bench.loop.pass_ms(80)

    assert still
    assert not pipe.is_paused


def test_a_client_that_used_much_waits_for_its_turn_and_one_that_used_little_does_not() -> None:
    greedy, modest = Pipe(), Pipe()
    bench = Bench(greedy)
    other = bench.connect(modest)
    bench.receive(1, other, "modest")
    while greedy.answers < 100:
        bench.receive(10, client_id="greedy")
        bench.loop.turn()

    bench.receive(REQUESTS, client_id="greedy")
    answers = greedy.answers
    bench.receive(1, other, "modest")

    assert modest.answers == 2  # although the other one has requests in memory
    bench.receive(1, client_id="greedy")
    assert greedy.is_paused
    assert greedy.answers == answers
    bench.settle()
    while greedy.inbox:
        greedy.read()
        bench.settle()
    assert greedy.answers >= 100 + REQUESTS
    assert not greedy.is_paused


def test_a_readable_connection_that_has_to_wait_is_not_read() -> None:
    pipes = [Pipe() for _ in range(20)]
    bench = Bench(Pipe())
    flood = [bench.connect(pipe) for pipe in pipes]
    for connection in flood * 2:
        bench.receive(3, connection, "flood")
    bench.settle()
    bench.receive(1, client_id="somebody else")

    for connection in flood:
        bench.receive(3, connection, "flood")

    waiting = [pipe for pipe in pipes if pipe.inbox]
    assert waiting
    assert all(pipe.is_paused for pipe in waiting)
    assert bench.metrics.held_back.of("turn").count >= len(waiting)
    bench.settle()
    assert [pipe.answers for pipe in pipes] == [9] * 20
    assert not any(pipe.is_paused for pipe in pipes)


def test_another_name_does_not_make_a_client_forget_what_it_used() -> None:
    pipe = Pipe()
    bench = Bench(pipe)
    for number in range(100):
        bench.receive(1, client_id=f"name {number}")
        bench.settle()

    bench.receive(1, client_id="one more")

    assert bench.connection.client_usage.used_ns >= 10 * MILLISECOND


def test_of_a_long_client_id_the_beginning_is_kept() -> None:
    bench = Bench(Pipe())

    bench.receive(1, client_id="n" * 30_000)
    usage = bench.connection.client_usage
    bench.receive(1, client_id="n" * 30_000)

    assert bench.connection.session.client_id == "n" * CLIENT_ID_CHARS_MAX
    assert bench.connection.client_usage is usage


@pytest.mark.parametrize("requests", [0, 3])
def test_a_closed_connection_is_freed_without_the_garbage_collector(requests: int) -> None:
    pipe = Pipe()
    bench = Bench(Pipe())

    def closed() -> "weakref.ref[KafkaConnection]":
        connection = bench.connect(pipe)
        bench.receive(requests, connection)
        bench.settle()
        connection.closed()
        pipe.handler = None
        return weakref.ref(connection)

    gc.collect()
    gc.disable()
    try:
        assert closed()() is None
    finally:
        gc.enable()


def test_a_parked_reply_keeps_nothing_of_a_client_that_is_gone() -> None:
    bench = Bench(Pipe())
    pipe = Pipe()
    parked: list[ParkedReply] = []

    @bench.routes.handles(HeartbeatRequest)
    def park(request: HeartbeatRequest, call: Request) -> None:
        parked.append(
            ParkedReply(call, lambda call, error_code: call.reply(HeartbeatResponse(error_code=error_code)))
        )

    def served(*, is_closed: bool) -> "weakref.ref[KafkaConnection]":
        connection = bench.connect(pipe)
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        pipe.inbox += bytes(request_frame(APIS[12], RequestHeader(12, 3, 1, "test"), request))
        pipe.read()
        if is_closed:
            connection.closed()
            pipe.handler = None
        else:
            parked[-1](0)
        return weakref.ref(connection)

    gc.collect()
    gc.disable()
    try:
        gone = served(is_closed=True)
        is_freed = gone() is None
    finally:
        gc.enable()
    parked[-1](0)
    unheard = pipe.answers
    served(is_closed=False)

    assert is_freed
    assert (unheard, pipe.answers) == (0, 1)


def test_slices_are_charged_to_the_client_and_its_address() -> None:
    bench = Bench(Pipe())
    bench.is_sliced, bench.steps = True, 100
    bench.receive(1)
    bench.settle()

    used_ns = bench.connection.client_usage.recent_ns(bench.loop.now())
    assert used_ns >= 100 * bench.cost_ns
    assert bench.connection.address_usage.used_ns == bench.connection.client_usage.used_ns


def test_little_is_read_at_a_time_while_memory_is_short() -> None:
    bench = Bench(Pipe())
    modest = bench.connect(Pipe())
    assert len(modest.get_buffer() or b"") == SCRATCH_BYTES

    bench.is_pressed = True
    bench.scheduler.press()
    for _ in range(3):
        assert len(modest.get_buffer() or b"") == CONTENDED_BYTES
        bench.loop.turn()

    bench.is_pressed = False
    modest.get_buffer()
    bench.loop.turn()
    assert len(modest.get_buffer() or b"") == SCRATCH_BYTES


@pytest.mark.parametrize("leaves", [True, False])
def test_copies_of_frames_are_counted_as_long_as_a_request_is_served_in_slices(leaves: bool) -> None:
    bench = Bench(Pipe())
    bench.is_sliced, bench.steps, bench.keeps = True, 100, True
    bench.receive(1)
    assert bench.request_memory.kept_bytes > 0

    if leaves:
        bench.connection.closed()
    else:
        bench.settle()

    assert bench.request_memory.kept_bytes == 0
