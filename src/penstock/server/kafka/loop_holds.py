"""Names the requests that held the loop: while a node works on one, it serves nobody else.

Each is counted by its API. An event names the worst of a second, so that a client which does nothing else
does not fill the log.
"""

from typing import NamedTuple

from penstock.core.model import MILLISECOND
from penstock.observability import Counter, log
from penstock.runtime.loop_watch import REPORT_NS

# Of the name that a client calls itself by.
NAME_CHARS_MAX = 64


class LoopHold(NamedTuple):
    """A request that was worked on for so long without a break."""

    elapsed_ns: int
    api: str
    version: int
    client_id: str
    peer: str


class LoopHolds:
    """What held the loop of a node."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._reported_at: int | None = None
        self._worst: LoopHold | None = None
        self._unreported = 0

    def note(self, hold: LoopHold, now_ns: int) -> None:
        """Count it; an event names it, or the worst since the last event."""
        self._counter.of(hold.api).count += 1
        self._unreported += 1
        if self._worst is None or hold > self._worst:
            self._worst = hold
        if self._reported_at is not None and now_ns - self._reported_at < REPORT_NS:
            return
        worst, count = self._worst, self._unreported
        self._worst, self._unreported, self._reported_at = None, 0, now_ns
        log.warning(
            "kafka.held_the_loop",
            api=worst.api,
            version=worst.version,
            client_id=worst.client_id[:NAME_CHARS_MAX],
            peer=worst.peer,
            ms=worst.elapsed_ns // MILLISECOND,
            requests=count,
        )
