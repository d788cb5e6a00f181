"""Timers on the loop: one heap, one loop timer, and sockets before deadlines.

When deadlines are due, the loop polls its sockets a few times before they fire, so that
frames which arrived earlier are delivered first: after a stall of the process the kernel
holds the heartbeats that came meanwhile, and reading them must come before the election
timeout that is due at the same time.

Work that serves all requests at once, a sync above all, waits until the sockets have nothing more
to read (`when_idle`), within limits.
"""

import asyncio
import heapq
import select
from collections.abc import Callable
from typing import TypeAlias

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime.port import Callback, Clock

Deliver: TypeAlias = Callable[..., None]
# A callback queued while the loop runs callbacks comes after one poll of the sockets, but
# the readers found by that poll may be queued behind it: the third hop is behind them.
ROUNDS_MIN = 3
# Links that still have unread bytes delay the timers, but a flood must not delay them for ever; nor must a
# follower that reads megabytes while each turn of its loop takes long.
ROUNDS_MAX = 64
ROUNDS_NS_MAX = 50 * MILLISECOND
_CANCELLED_MIN = 64
# How long `when_idle` waits at most: some hundred requests, which then share the cost of one sync. A loop
# that is busy for so long has longer queues than that anyway.
IDLE_WAIT_NS = 5 * MILLISECOND


class LoopSockets:
    """Whether a socket of a loop is ready: its own poll descriptor shows it. Only uvloop exposes that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        backend: Callable[[], int] | None = getattr(loop, "_get_backend_id", None)
        self._poll: select.poll | None = None
        if backend is not None:
            self._poll = select.poll()
            self._poll.register(backend(), select.POLLIN)

    @property
    def can_tell(self) -> bool:
        return self._poll is not None

    def are_ready(self) -> bool:
        """Whether the loop would find something to do; False if that cannot be told."""
        return self._poll is not None and bool(self._poll.poll(0))


class LoopTimer:
    """A deadline in the heap."""

    __slots__ = ("_timers", "fire")

    def __init__(self, timers: "LoopTimers", fire: Callback) -> None:
        self._timers = timers
        self.fire: Callback | None = fire

    def cancel(self) -> None:
        if self.fire is not None:
            self.fire = None
            self._timers.forget_one()


class LoopTimers:
    """The timers of one node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        deliver: Deliver,
        sockets_busy: Callable[[], bool] = lambda: False,
        sockets: LoopSockets | None = None,
    ) -> None:
        self._loop = loop
        self._sockets = sockets or LoopSockets(loop)
        self._clock = clock
        self._deliver = deliver
        self._sockets_busy = sockets_busy
        self._heap: list[tuple[int, int, LoopTimer]] = []
        self._sequence = 0
        self._cancelled = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for = -1
        self._going_round = False

    def at(self, deadline: Instant, fire: Callback) -> LoopTimer:
        timer = LoopTimer(self, fire)
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, timer))
        if self._handle is None or deadline < self._armed_for:
            self._arm()
        return timer

    def soon(self, fire: Callback) -> asyncio.Handle:
        return self._loop.call_soon(self._deliver, fire)

    def when_idle(self, fire: Callback) -> None:
        self._loop.call_soon(self._try_idle, fire, Instant(self._clock.now() + IDLE_WAIT_NS))

    def _try_idle(self, fire: Callback, deadline: Instant) -> None:
        if self._sockets.are_ready() and self._clock.now() < deadline:
            self._loop.call_soon(self._try_idle, fire, deadline)
        else:
            self._deliver(fire)

    def watch(self, sockets_busy: Callable[[], bool]) -> None:
        """Set the function that says whether sockets still hold unread bytes."""
        self._sockets_busy = sockets_busy

    def forget_one(self) -> None:
        """A timer was cancelled. Its entry is removed in its turn, or when such entries are the majority."""
        self._cancelled += 1
        if self._cancelled > _CANCELLED_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].fire is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        if self._going_round or not self._heap:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed_for = self._heap[0][0]
        # The loop counts in milliseconds; rounded down, it would wake up early and spin.
        delay_ms = max(0, -((self._clock.now() - self._armed_for) // MILLISECOND))
        self._handle = self._loop.call_later(delay_ms / 1000, self._due)

    def _due(self) -> None:
        self._handle = None
        horizon = self._clock.now()
        if horizon < self._armed_for:
            self._arm()
            return
        self._going_round = True
        self._loop.call_soon(self._go_round, horizon, 1)

    def _go_round(self, horizon: Instant, rounds: int) -> None:
        may_wait = rounds < ROUNDS_MAX and self._clock.now() - horizon < ROUNDS_NS_MAX
        if rounds < ROUNDS_MIN or (may_wait and self._sockets_busy()):
            self._loop.call_soon(self._go_round, horizon, rounds + 1)
            return
        self._fire_until(horizon)
        self._going_round = False
        self._arm()

    def _fire_until(self, horizon: Instant) -> None:
        # Deadlines up to the horizon had passed when the rounds began; a timer that a
        # callback sets now waits for rounds of its own.
        last = self._sequence
        while self._heap and self._heap[0][0] <= horizon and self._heap[0][1] <= last:
            timer: LoopTimer = heapq.heappop(self._heap)[2]
            fire, timer.fire = timer.fire, None
            if fire is None:
                self._cancelled -= 1
            else:
                self._deliver(fire)
