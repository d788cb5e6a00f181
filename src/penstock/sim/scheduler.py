"""Virtual time: a heap of events, run one after the other on one thread.

Events of the same instant run in the order in which they were asked for, so a run is a
function of its seed. Nothing here or above may depend on hash order, addresses or the
real clock.
"""

import heapq
from collections.abc import Callable
from typing import Any


class Scheduler:
    """The world's true time, in nanoseconds since it began, and what is going to happen."""

    __slots__ = ("_heap", "_sequence", "events", "events_max", "now")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self.now = 0
        self.events = 0
        # A world in which more happens than this is in an endless loop, and time may not even pass.
        self.events_max = 10_000_000

    @property
    def is_exhausted(self) -> bool:
        return self.events >= self.events_max

    def at(self, moment: int, event: Callable[..., None], *arguments: Any) -> None:
        """Run `event` at `moment`; a moment in the past means now."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._sequence, event, arguments))

    def after(self, delay_ns: int, event: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay_ns, self._sequence, event, arguments))

    def run(self, end: int, enough: Callable[[], bool] | None = None) -> None:
        """Let everything happen up to and including `end`, or until `enough` says so after an event."""
        heap = self._heap
        pop = heapq.heappop
        limit = self.events_max
        while heap and heap[0][0] <= end and self.events < limit:
            self.now, _, event, arguments = pop(heap)
            self.events += 1
            event(*arguments)
            if enough is not None and enough():
                return
        self.now = max(self.now, end)
