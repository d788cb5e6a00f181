"""Timers on the real loop: their order, and sockets before deadlines."""

import socket
import struct
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.core.model import MILLISECOND, Instant, NodeId, Timestamp
from penstock.runtime import Address, NodeIdentity, Runtime, Timer
from penstock.runtime.loop import MachineClock
from penstock.runtime.peer_handshake import Hello, write_hello
from penstock.runtime.timers import IDLE_WAIT_NS, LoopTimers

ANY_PORT = Address("127.0.0.1", 0)


class HandClock:
    """Time that passes when it is asked for."""

    def __init__(self, step_ns: int) -> None:
        self.instant = 0
        self._step_ns = step_ns

    def now(self) -> Instant:
        self.instant += self._step_ns
        return Instant(self.instant)

    def wall(self) -> Timestamp:
        return Timestamp(0)


def framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def later(runtime: Runtime, delay_ms: int) -> Instant:
    return Instant(runtime.clock.now() + delay_ms * MILLISECOND)


def test_timers_fire_by_deadline_and_equal_ones_as_they_were_set(bench: Any) -> None:
    runtime = bench.node(1)
    fired: list[str] = []
    same = later(runtime, 10)

    runtime.timers.at(later(runtime, 20), lambda: fired.append("third"))
    runtime.timers.at(same, lambda: fired.append("first"))
    runtime.timers.at(same, lambda: fired.append("second"))
    runtime.timers.soon(lambda: fired.append("soon"))
    bench.until(lambda: len(fired) == 4)

    assert fired == ["soon", "first", "second", "third"]


def test_a_timer_never_fires_early_nor_inside_the_call_that_set_it(bench: Any) -> None:
    runtime = bench.node(1)
    early: list[int] = []
    fired: list[int] = []

    def check(deadline: Instant) -> None:
        fired.append(deadline)
        if runtime.clock.now() < deadline:
            early.append(deadline)

    for micros in range(0, 20_000, 137):
        deadline = Instant(runtime.clock.now() + micros * 1000)
        runtime.timers.at(deadline, lambda deadline=deadline: check(deadline))
    fired_inside = len(fired)
    bench.until(lambda: len(fired) == 146)

    assert fired_inside == 0
    assert early == []


def test_a_cancelled_timer_stays_silent_even_when_it_was_due_with_its_canceller(bench: Any) -> None:
    runtime = bench.node(1)
    fired: list[str] = []
    same = later(runtime, 5)

    doomed: list[Timer] = []

    def cancel_the_next() -> None:
        doomed[0].cancel()

    runtime.timers.at(same, cancel_the_next)
    doomed.append(runtime.timers.at(same, lambda: fired.append("doomed")))
    runtime.timers.soon(lambda: fired.append("doomed")).cancel()
    for _ in range(1000):
        runtime.timers.at(later(runtime, 5000), lambda: fired.append("doomed")).cancel()
    runtime.timers.at(same, lambda: fired.append("last"))
    bench.until(lambda: bool(fired))

    assert fired == ["last"]


@pytest.mark.parametrize("stalled_in", ["a callback", "the reader", "a timer"])
def test_after_a_stall_frames_that_arrived_go_before_deadlines_that_passed(
    bench: Any, new_recorder: Callable[[], Any], stalled_in: str
) -> None:
    follower = new_recorder()
    runtime = bench.node(1)
    listener = runtime.transport.listen(ANY_PORT, follower)
    leaders = [socket.create_connection(listener.address) for _ in range(20)]
    for number, leader in enumerate(leaders, start=2):
        identity = NodeIdentity(UUID(int=7), NodeId(number), UUID(int=number))
        leader.sendall(framed(write_hello(Hello(identity))))
    bench.until(lambda: len(follower.links) == len(leaders))
    pair = socket.socketpair()
    seen_at_timeout: list[int] = []

    def stall() -> None:
        # While this callback runs, heartbeats reach the kernel and the deadline passes.
        runtime.timers.at(later(runtime, 5), lambda: seen_at_timeout.append(len(follower.frames)))
        for leader in leaders:
            leader.sendall(framed(b"heartbeat"))
        time.sleep(0.02)

    if stalled_in == "a callback":
        runtime.timers.soon(stall)
    elif stalled_in == "a timer":
        bench.loop.call_later(0.005, stall)
    else:

        def stall_once() -> None:
            bench.loop.remove_reader(pair[0])
            stall()

        bench.loop.add_reader(pair[0], stall_once)
        pair[1].sendall(b"!")
    bench.until(lambda: bool(seen_at_timeout))
    for leader in (*leaders, *pair):
        leader.close()

    assert seen_at_timeout == [len(leaders)]


@pytest.mark.parametrize(("busy_rounds", "fires_when_dry"), [(0, True), (30, True), (10**9, False)])
def test_links_with_unread_bytes_hold_timers_back_but_not_for_ever(
    bench: Any, busy_rounds: int, fires_when_dry: bool
) -> None:
    left = [busy_rounds]
    fired: list[bool] = []

    def busy() -> bool:
        left[0] -= 1
        return left[0] > 0

    clock = MachineClock()
    timers = LoopTimers(bench.loop, clock, lambda callback: callback(), busy)

    timers.at(clock.now(), lambda: fired.append(left[0] <= 0))
    bench.until(lambda: bool(fired))

    assert fired == [fires_when_dry]


def test_links_that_are_never_read_to_the_end_hold_timers_back_for_some_milliseconds_only(bench: Any) -> None:
    rounds = 0

    def busy() -> bool:
        nonlocal rounds
        rounds += 1
        return True

    fired: list[bool] = []
    # Each round of the loop takes a while, since others keep it busy too.
    clock = HandClock(10 * MILLISECOND)
    timers = LoopTimers(bench.loop, clock, lambda callback: callback(), busy)

    timers.at(clock.now(), lambda: fired.append(True))
    bench.until(lambda: bool(fired))

    assert 0 < rounds < 10


@pytest.mark.parametrize(("unread", "read_first"), [(0, 0), (5, 5)])
def test_what_waits_for_an_idle_loop_comes_behind_all_that_arrived(
    bench: Any, unread: int, read_first: int
) -> None:
    timers = LoopTimers(bench.loop, HandClock(0), lambda callback: callback())
    ours, theirs = socket.socketpair()
    requests = [0]
    seen: list[int] = []

    def readable() -> None:
        # One request in each turn of the loop.
        ours.recv(1)
        requests[0] += 1

    def ask() -> None:
        theirs.sendall(bytes(unread))
        timers.when_idle(lambda: seen.append(requests[0]))

    bench.loop.add_reader(ours, readable)
    # The loop watches a socket only from its next look at them on.
    bench.loop.call_soon(lambda: bench.loop.call_soon(ask))
    bench.until(lambda: bool(seen))
    bench.loop.remove_reader(ours)
    ours.close()
    theirs.close()

    assert seen == [read_first]


def test_a_loop_that_is_never_idle_holds_nothing_back_for_ever(bench: Any) -> None:
    clock = HandClock(MILLISECOND // 4)
    timers = LoopTimers(bench.loop, clock, lambda callback: callback())
    ours, theirs = socket.socketpair()
    theirs.sendall(b"never read")
    seen: list[int] = []

    bench.loop.add_reader(ours, lambda: None)
    bench.loop.call_soon(lambda: bench.loop.call_soon(timers.when_idle, lambda: seen.append(clock.instant)))
    bench.until(lambda: bool(seen))
    bench.loop.remove_reader(ours)
    ours.close()
    theirs.close()

    assert IDLE_WAIT_NS < seen[0] <= IDLE_WAIT_NS + MILLISECOND
