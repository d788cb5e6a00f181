"""One incarnation of a node, from its start to its crash.

Whatever is on its way to a node (a frame, a timer, a finished sync) goes to the incarnation
that asked for it. A crash ends the incarnation and thereby drops all of it at once, which is
what a crash does; the next incarnation starts from the disk alone.

A process that was stopped finds its sockets full when it goes on, and its event loop reads one after
the other, in any order: each from its first byte to its last, but a client's request perhaps before the
frame of a peer that came much earlier.
"""

import random
from collections.abc import Callable
from typing import Any

from penstock.sim.scheduler import Scheduler
from penstock.sim.trace import Trace
from penstock.storage.disk import PowerCut

TIMER, SOON = "timer", "soon"


class Incarnation:
    """Delivers callbacks to one incarnation of a node, as the supervisor does in production."""

    __slots__ = (
        "_channels",
        "_died",
        "_overdue",
        "_paused",
        "_soon",
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
        # What came during a pause: callbacks of the loop itself, of each socket, and timers.
        self._soon: list[tuple[Any, ...]] = []
        self._channels: dict[object, list[tuple[Any, ...]]] = {}
        self._overdue: list[tuple[Any, ...]] = []

    def deliver(self, what: str, detail: int | str, callback: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the node now: unless it is dead, and later if it is paused."""
        if not self.alive:
            return
        if self._paused:
            self._wait(what, (what, detail, callback, *arguments))
            return
        self.trace.record(self.scheduler.now, self.name, what, detail)
        try:
            callback(*arguments)
        except (Exception, PowerCut) as failure:
            self.alive = False
            self._died(failure)

    def deliver_on(
        self, channel: object, what: str, detail: int | str, callback: Callable[..., None], *arguments: Any
    ) -> None:
        """Like `deliver`, for something that comes on a socket: after all that came on it before."""
        if self._paused and self.alive:
            self._wait(channel, (what, detail, callback, *arguments))
        else:
            self.deliver(what, detail, callback, *arguments)

    def _wait(self, channel: object, delivery: tuple[Any, ...]) -> None:
        if channel == TIMER:
            self._overdue.append(delivery)
        elif channel == SOON:
            self._soon.append(delivery)
        else:
            self._channels.setdefault(channel, []).append(delivery)

    def later_on(
        self,
        delay_ns: int,
        channel: object,
        what: str,
        detail: int | str,
        callback: Callable[..., None],
        *arguments: Any,
    ) -> None:
        self.scheduler.after(delay_ns, self.deliver_on, channel, what, detail, callback, *arguments)

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
        channels = list(self._channels.values())
        self.random.shuffle(channels)
        for waiting in (self._soon, *channels, self._overdue):
            for delivery in waiting:
                self.scheduler.after(0, self.deliver, *delivery)
        self._soon, self._channels, self._overdue = [], {}, []

    def end(self) -> None:
        self.alive = False
