"""Answers leave in the order the requests came, however long each takes.

    requests    1  2  3  4          a slot is opened per request
    slots      [✓][ ][✓][ ]         1 leaves; 3 waits for 2

What is released in one turn of the loop is sent by one system call.
"""

from collections import deque
from collections.abc import Callable

from penstock.runtime.pipes import Part, Pipe


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("_replies", "abandoned", "parts")

    def __init__(self, replies: "Replies") -> None:
        self._replies = replies
        self.parts: list[Part] | None = None
        # Called if the connection ends before there is an answer.
        self.abandoned: Callable[[], None] | None = None

    def fill(self, parts: list[Part]) -> None:
        """Give the answer: once. It leaves as soon as everything before it has left."""
        assert self.parts is None, "an answer is given once"
        self.parts = parts
        self._replies.release()


class Replies:
    """The ordered slots of one connection."""

    __slots__ = ("_corked", "_flush_later", "_out", "_pipe", "_waiting")

    def __init__(self, pipe: Pipe, flush_later: Callable[["Replies"], None]) -> None:
        """`flush_later` calls `flush` at the end of this turn of the loop."""
        self._pipe = pipe
        self._flush_later = flush_later
        self._waiting: deque[Slot] = deque()
        self._out: list[Part] = []
        self._corked = False

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self) -> Slot:
        slot = Slot(self)
        self._waiting.append(slot)
        return slot

    def cork(self) -> None:
        """Collect what is released, so that one system call can send it all."""
        self._corked = True

    def release(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].parts is not None:
            self._out += waiting.popleft().parts or ()
        if self._out and not self._corked:
            # Corked from now on, until the turn is over.
            self._corked = True
            self._flush_later(self)

    def flush(self) -> None:
        """Send what was released."""
        self._corked = False
        if self._out:
            out, self._out = self._out, []
            self._pipe.write(out)

    def abandon(self) -> None:
        """Forget every slot: the connection is over, and answers to it go nowhere."""
        waiting, self._waiting = self._waiting, deque()
        for slot in waiting:
            if slot.parts is None and slot.abandoned is not None:
                slot.abandoned()
        self._out.clear()
