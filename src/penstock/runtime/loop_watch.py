"""Names what held the loop: while a callback runs, a node does nothing else.

An event (`node.held_the_loop`) names the worst of a second: timers, commits, what peers have sent, images of
the metadata, slices of long work, pages. Requests of Kafka's clients are watched by their server, which knows
who has sent them (`kafka.held_the_loop`).
"""

from collections.abc import Callable
from functools import partial

from penstock.core.model import MILLISECOND, SECOND
from penstock.observability import log

# Others should not wait for longer than this.
HELD_NS = 50 * MILLISECOND
REPORT_NS = SECOND


class LoopWatch:
    """What took too long, lately."""

    def __init__(self) -> None:
        self._reported_at: int | None = None
        self._worst = (0, "")
        self._unreported = 0

    def note(self, what: str, elapsed_ns: int, now_ns: int) -> None:
        """Count it; an event names it, or the worst since the last event."""
        self._unreported += 1
        self._worst = max(self._worst, (elapsed_ns, what))
        if self._reported_at is not None and now_ns - self._reported_at < REPORT_NS:
            return
        elapsed_ns, what = self._worst
        log.warning("node.held_the_loop", what=what, ms=elapsed_ns // MILLISECOND, times=self._unreported)
        self._worst, self._unreported, self._reported_at = (0, ""), 0, now_ns


def name_of(callback: Callable[..., object]) -> str:
    """The name of a function, or what its owner says that it was doing (`held_by`)."""
    while isinstance(callback, partial):
        callback = callback.func
    held_by: str = getattr(getattr(callback, "__self__", None), "held_by", "")
    return held_by or getattr(callback, "__qualname__", type(callback).__name__)
