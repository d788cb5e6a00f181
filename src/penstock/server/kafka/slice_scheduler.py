"""Long work in slices: a few milliseconds in each turn of the loop, whoever asked for it.

A request for a hundred thousand partitions is legal, and takes a second. It is served in steps: its
handler is a generator that yields after every row. A slice is as many steps as fit into `SLICE_NS`, and no
more than `SLICE_STEPS_MAX`.

    turns of the loop   │ sockets, small requests │ slice of A │ sockets … │ slice of B │ sockets … │
    active              A B C D    one slice in each turn, each of them in turn
    waiting             E F G …    not decoded: their frames are all that they hold

Small requests are served between the slices, however many large ones there are. No more than
`ACTIVE_MAX` are being worked on, so that the memory for what they become has a bound.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.core.model import MILLISECOND, Instant

SLICE_NS: Final = 2 * MILLISECOND
SLICE_STEPS_MAX: Final = 100
ACTIVE_MAX: Final = 4


class SlicedRequest(Protocol):
    """A request that takes several slices."""

    def advance(self) -> bool:
        """Do one slice of it; returns whether that was the last one."""


class SliceScheduler:
    """The long work of a node. `soon` calls back after the other connections have had their turn."""

    def __init__(self, now: Callable[[], Instant], soon: Callable[[Callable[[], None]], object]) -> None:
        self._now = now
        self._soon = soon
        self._active: deque[SlicedRequest] = deque()
        self._waiting: deque[SlicedRequest] = deque()
        self._turn_set = False

    @property
    def is_idle(self) -> bool:
        return not self._active

    def add(self, work: SlicedRequest) -> None:
        """Do the work, beginning with the next turn of the loop or when it is its turn."""
        (self._active if len(self._active) < ACTIVE_MAX else self._waiting).append(work)
        if not self._turn_set:
            self._turn_set = True
            self._soon(self._turn)

    def advance(self, steps: Iterator[None]) -> bool:
        """Take as many steps as one slice has; returns whether there are no more."""
        now, left = self._now, SLICE_STEPS_MAX
        end_ns = now() + SLICE_NS
        for _ in steps:
            left -= 1
            if not left or now() >= end_ns:
                return False
        return True

    def _turn(self) -> None:
        self._turn_set = False
        work = self._active.popleft()
        if not work.advance():
            self._active.append(work)
        elif self._waiting:
            self._active.append(self._waiting.popleft())
        if self._active and not self._turn_set:
            self._turn_set = True
            self._soon(self._turn)
