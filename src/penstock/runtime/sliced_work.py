"""Long work on the loop, cut into slices so that others are served in between.

A piece of work is a generator: it yields where it can be interrupted, after a millisecond or so. All of a
node's pieces take turns, and share a few milliseconds of each turn of the loop however many they are: work
takes longer the more there is of it, and everything else is served as before.
"""

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from penstock.core.model import MILLISECOND
from penstock.runtime.port import Clock, Timers

Slices: TypeAlias = Iterator[None]
# What all long work together takes of a turn of the loop; the slice that exceeds it is the last one.
TURN_NS = 2 * MILLISECOND
SLICES_PER_TURN_MAX = 4


class SlicedWork:
    """The long work of one node."""

    def __init__(self, timers: Timers, clock: Clock, turn_ns: int = TURN_NS) -> None:
        self._turn_ns = turn_ns
        self._timers = timers
        self._clock = clock
        self._waiting: deque[Slices] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, slices: Slices) -> None:
        """Do all of it, beginning in the next turn of the loop."""
        self._waiting.append(slices)
        if len(self._waiting) == 1:
            self._timers.soon(self._turn)

    def _turn(self) -> None:
        waiting, clock = self._waiting, self._clock
        end = clock.now() + self._turn_ns
        for _ in range(SLICES_PER_TURN_MAX):
            if next(waiting[0], self) is self:
                waiting.popleft()
            else:
                waiting.rotate(-1)
            if not waiting:
                return
            if clock.now() >= end:
                break
        self._timers.soon(self._turn)
