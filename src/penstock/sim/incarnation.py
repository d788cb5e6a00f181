"""One incarnation of a node, from its start to its crash.

Whatever is on its way to a node (a frame, a timer, a finished sync) goes to the incarnation
that asked for it. A crash ends the incarnation and thereby drops all of it at once, which is
what a crash does; the next incarnation starts from the disk alone.
"""

import random
from collections.abc import Callable
from typing import Any

from penstock.sim.scheduler import Scheduler
from penstock.sim.trace import Trace
from penstock.storage.disk import PowerCut

TIMER = "timer"


class Incarnation:
    """Delivers callbacks to one incarnation of a node, as the supervisor does in production."""

    __slots__ = (
        "_died",
        "_overdue",
        "_paused",
        "_response_memory",
        "alive",
        "name",
        "random",
        "scheduler",
        "trace",
    )

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        trace: Trace,
        luck: random.Random,
        died: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.trace = trace
        self.random = luck
        self._died = died
        self.alive = True
        self._paused = False
        self._response_memory: list[tuple[Any, ...]] = []
        self._overdue: list[tuple[Any, ...]] = []

    def deliver(self, what: str, detail: int | str, callback: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the node now: unless it is dead, and later if it is paused."""
        if not self.alive:
            return
        if self._paused:
            waiting = self._overdue if what == TIMER else self._response_memory
            waiting.append((what, detail, callback, *arguments))
            return
        self.trace.record(self.scheduler.now, self.name, what, detail)
        try:
            callback(*arguments)
        except (Exception, PowerCut) as failure:
            self.alive = False
            self._died(failure)

    def later(
        self, delay_ns: int, what: str, detail: int | str, callback: Callable[..., None], *arguments: Any
    ) -> None:
        self.scheduler.after(delay_ns, self.deliver, what, detail, callback, *arguments)

    def pause(self) -> None:
        """Stop the process: the world goes on and sends it things."""
        self._paused = True

    def resume(self) -> None:
        """Go on. What came meanwhile is read before what is overdue, as the timers' contract says."""
        if not self._paused:
            return
        self._paused = False
        waiting = self._response_memory + self._overdue
        self._response_memory, self._overdue = [], []
        for delivery in waiting:
            self.scheduler.after(0, self.deliver, *delivery)

    def end(self) -> None:
        self.alive = False
