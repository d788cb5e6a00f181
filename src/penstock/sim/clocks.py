"""The clocks, timers and randomness of a simulated node."""

import random

from penstock.core.model import MILLISECOND, Instant, Timestamp
from penstock.runtime import Callback
from penstock.sim.incarnation import SOON, TIMER, Incarnation
from penstock.sim.scheduler import Scheduler

# The world begins in the autumn of 2026.
WORLD_BEGINS_MS = 1_790_000_000_000
_MILLION = 1_000_000


class SimulatedClock:
    """A monotonic clock that drifts by some parts per million, and a wall clock that is off and can jump."""

    __slots__ = ("_base", "_born", "_drift_ppm", "_scheduler", "skew_ms")

    def __init__(self, scheduler: Scheduler, base: int, drift_ppm: int, skew_ms: int) -> None:
        self._scheduler = scheduler
        self._born = scheduler.now
        self._base = base
        self._drift_ppm = drift_ppm
        self.skew_ms = skew_ms

    def now(self) -> Instant:
        passed = self._scheduler.now - self._born
        return Instant(self._base + passed + passed * self._drift_ppm // _MILLION)

    def wall(self) -> Timestamp:
        return Timestamp(WORLD_BEGINS_MS + self._scheduler.now // MILLISECOND + self.skew_ms)

    def moment_of(self, deadline: Instant) -> int:
        """The first instant of true time at which this clock shows `deadline` or more."""
        shown = deadline - self._base
        passed = shown * _MILLION // (_MILLION + self._drift_ppm)
        while passed + passed * self._drift_ppm // _MILLION < shown:
            passed += 1
        return self._born + passed


class SimulatedTimer:
    """A timer of one incarnation."""

    __slots__ = ("fire",)

    def __init__(self, fire: Callback) -> None:
        self.fire: Callback | None = fire

    def cancel(self) -> None:
        self.fire = None

    def run(self) -> None:
        # Asked again on delivery: a callback that came first may have cancelled it.
        fire, self.fire = self.fire, None
        if fire is not None:
            fire()


class SimulatedTimers:
    """Timers on virtual time."""

    __slots__ = ("_clock", "_incarnation")

    def __init__(self, life: Incarnation, clock: SimulatedClock) -> None:
        self._incarnation = life
        self._clock = clock

    def at(self, deadline: Instant, fire: Callback) -> SimulatedTimer:
        timer = SimulatedTimer(fire)
        self._incarnation.scheduler.at(self._clock.moment_of(deadline), self._due, timer, TIMER)
        return timer

    def soon(self, fire: Callback) -> SimulatedTimer:
        timer = SimulatedTimer(fire)
        self._incarnation.scheduler.after(0, self._due, timer, SOON)
        return timer

    def when_idle(self, fire: Callback) -> None:
        # Requests take no time here, so that the loop is never busy.
        self.soon(fire)

    def _due(self, timer: SimulatedTimer, what: str) -> None:
        if timer.fire is not None:
            self._incarnation.deliver(what, 0, timer.run)


class SimulatedEntropy:
    """Random bytes that are the same in every run of a seed."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck

    def bytes(self, count: int) -> bytes:
        return self._luck.randbytes(count)
