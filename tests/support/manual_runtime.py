"""A runtime that the test drives: time passes, syncs end and executor jobs run when the test says so."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from penstock.core.model import MILLISECOND, Instant, PenstockError, Timestamp
from penstock.runtime import ExecutorKind, Runtime
from penstock.storage.commit import SyncableFile


class HandTimers:
    """Timers and a clock that move when the test says so."""

    def __init__(self) -> None:
        self.instant = 1_000_000_000
        self.wall_ms = 1_700_000_000_000
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> Instant:
        return Instant(self.instant)

    def wall(self) -> Timestamp:
        return Timestamp(self.wall_ms)

    def at(self, deadline: Instant, fire: Callable[[], None]) -> "HandTimer":
        timer = HandTimer(fire)
        heapq.heappush(self._heap, (deadline, next(self._order), timer.run))
        return timer

    def soon(self, fire: Callable[[], None]) -> "HandTimer":
        return self.at(self.now(), fire)

    def when_idle(self, fire: Callable[[], None]) -> None:
        self.soon(fire)

    def step(self) -> bool:
        """Fire what is due first, if anything is."""
        if not self._heap or self._heap[0][0] > self.instant:
            return False
        heapq.heappop(self._heap)[2]()
        return True

    def run(self) -> None:
        while self.step():
            pass

    def pass_ms(self, duration_ms: int) -> None:
        end = self.instant + duration_ms * MILLISECOND
        while self._heap and self._heap[0][0] <= end:
            self._move_to(max(self.instant, self._heap[0][0]))
            self.run()
        self._move_to(end)

    def _move_to(self, instant: int) -> None:
        self.wall_ms += (instant - self.instant) // MILLISECOND
        self.instant = instant


class HandTimer:
    def __init__(self, fire: Callable[[], None]) -> None:
        self._fire: Callable[[], None] | None = fire

    def cancel(self) -> None:
        self._fire = None

    def run(self) -> None:
        fire, self._fire = self._fire, None
        if fire is not None:
            fire()


class HandSyncs:
    """Syncs that end when the test says so, or at once."""

    def __init__(self) -> None:
        self.held = False
        self.waiting: list[tuple[Sequence[SyncableFile], Callable[[OSError | None], None]]] = []

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        self.waiting.append((files, done))

    def finish(self, error: OSError | None = None) -> None:
        while self.waiting:
            files, done = self.waiting.pop(0)
            if error is None:
                for file in files:
                    file.sync()
            done(error)


class InlineSpawn:
    """Runs work when it is asked for, and tells so later."""

    def __init__(self, timers: HandTimers) -> None:
        self._timers = timers

    def spawn(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> HandTimer:
        del lane
        try:
            result = work()
        except PenstockError as error:
            trouble = error
            return self._timers.soon(lambda: failed(trouble))
        return self._timers.soon(lambda: done(result))


class CountingEntropy:
    def __init__(self) -> None:
        self._next = count(1)

    def bytes(self, size: int) -> bytes:
        return next(self._next).to_bytes(size, "big")


def hand_runtime(timers: HandTimers, syncs: HandSyncs) -> Runtime:
    """Everything but peers."""
    runtime: Any = Runtime(
        timers,
        timers,
        None,  # type: ignore[arg-type]  # nobody to talk to
        syncs,
        InlineSpawn(timers),
        CountingEntropy(),
    )
    return runtime  # type: ignore[no-any-return]


def settle(timers: HandTimers, syncs: HandSyncs) -> None:
    """Let everything that is due happen, syncs too unless they are held."""
    while timers.step() or (syncs.waiting and not syncs.held):
        if syncs.waiting and not syncs.held:
            syncs.finish()
