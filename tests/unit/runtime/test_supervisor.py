import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime import Callback
from penstock.runtime.loop import Supervisor, put_loop_before_threads
from penstock.runtime.sliced_work import SlicedWork, Slices
from tests.support.recorded_events import recorded_events


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


class Winding:
    """A service that winds down when it is asked to."""

    def __init__(self) -> None:
        self.done: Callback | None = None

    def stop(self, done: Callback) -> None:
        self.done = done


def bug() -> None:
    raise AssertionError("impossible")


def test_after_the_first_exception_nothing_is_delivered(loop: asyncio.AbstractEventLoop) -> None:
    overs: list[str] = []
    delivered: list[int] = []
    supervisor = Supervisor(loop, over=lambda: overs.append("over"))

    supervisor.deliver(delivered.append, 1)
    supervisor.deliver(bug)
    supervisor.deliver(delivered.append, 2)
    supervisor.fail(ValueError("a consequence"))

    assert delivered == [1]
    assert overs == ["over"]
    assert isinstance(supervisor.failure, AssertionError)


def test_a_node_ends_when_its_service_has_wound_down(loop: asyncio.AbstractEventLoop) -> None:
    overs: list[str] = []
    service = Winding()
    supervisor = Supervisor(loop, over=lambda: overs.append("over"))
    supervisor.run(lambda: service)

    supervisor.stop()
    assert overs == []
    assert service.done is not None
    service.done()
    supervisor.close()

    assert overs == ["over"]
    assert supervisor.failure is None


def test_what_is_owned_is_closed_in_reverse_order_even_if_one_fails(loop: asyncio.AbstractEventLoop) -> None:
    closed: list[int] = []
    supervisor = Supervisor(loop, over=lambda: None)
    for close in (lambda: closed.append(1), bug, lambda: closed.append(3)):
        supervisor.own(close)

    supervisor.close()

    assert closed == [3, 1]
    assert isinstance(supervisor.failure, AssertionError)


@pytest.mark.parametrize("how", ["fails", "is still running"])
def test_a_task_belongs_to_the_node(loop: asyncio.AbstractEventLoop, how: str) -> None:
    supervisor = Supervisor(loop)
    seen: list[str] = []
    act: Callable[[], None] = bug if how == "fails" else loop.stop

    async def serve() -> None:
        loop.call_soon(loop.stop)
        try:
            if act is bug:
                bug()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    supervisor.adopt(serve())
    loop.run_forever()
    supervisor.close()

    assert (supervisor.failure is not None) == (how == "fails")
    assert seen == ([] if how == "fails" else ["cancelled"])


class Clock:
    """Time passes only when the test says so."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def work(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MILLISECOND


def test_a_callback_that_held_the_loop_is_named(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, supervisor = Clock(), Supervisor(loop)
    monkeypatch.setattr("penstock.runtime.loop.perf_counter_ns", clock)

    with recorded_events() as events:
        supervisor.deliver(clock.work, 50)
        supervisor.deliver(clock.work, 51)
        supervisor.deliver(partial(clock.work, 70))
        supervisor.deliver(clock.work, 60)
        clock.work(1_000)
        supervisor.deliver(clock.work, 55)

    found = [(event["what"], event["ms"], event["times"]) for event in events.named("node.held_the_loop")]
    assert found == [("Clock.work", 51, 1), ("Clock.work", 70, 3)]


def test_long_work_says_which_piece_of_it_held_the_loop(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, supervisor = Clock(), Supervisor(loop)
    monkeypatch.setattr("penstock.runtime.loop.perf_counter_ns", clock)
    soon: list[Callable[[], None]] = []
    work = SlicedWork(lambda: Instant(clock()), soon.append)

    def long_work() -> Slices:
        clock.work(80)
        yield

    work.run(long_work())
    with recorded_events() as events:
        supervisor.deliver(soon.pop())

    (event,) = events.named("node.held_the_loop")
    assert event["what"].endswith("long_work")


def test_the_loop_gets_its_turn_soon_while_threads_compute() -> None:
    before = sys.getswitchinterval()
    try:
        put_loop_before_threads()

        assert sys.getswitchinterval() <= before / 5
    finally:
        sys.setswitchinterval(before)
