"""Answers leave in the order the requests came, however long each takes.

    requests    1  2  3  4          a slot is opened per request
    slots      [✓][ ][✓][ ]         1 leaves; 3 waits for 2, and is held in memory

What is released in one turn of the loop is sent by one system call.
"""

from collections import deque
from collections.abc import Callable

from penstock.runtime.pipes import BUFFERS, Part, Pipe


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("_replies", "abandoned", "held_bytes", "parts")

    def __init__(self, replies: "Replies") -> None:
        self._replies = replies
        self.parts: list[Part] | None = None
        self.held_bytes = 0
        # Called if the connection ends before there is an answer.
        self.abandoned: Callable[[], None] | None = None

    def fill(self, parts: list[Part]) -> None:
        """Give the answer: once. It leaves as soon as everything before it has left."""
        assert self.parts is None, "an answer is given once"
        self.parts = parts
        self._replies.release(self)


class Replies:
    """The ordered slots of one connection."""

    __slots__ = ("_corked", "_flush_later", "_moved", "_out", "_pipe", "_waiting", "held_bytes")

    def __init__(
        self, pipe: Pipe, flush_later: Callable[["Replies"], None], moved: Callable[[int], None]
    ) -> None:
        """`flush_later` calls `flush` at the end of this turn of the loop.

        `moved` is told by how much `held_bytes` changes: answers that wait for an earlier one.
        """
        self._pipe = pipe
        self._flush_later = flush_later
        self._moved = moved
        self.held_bytes = 0
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

    def release(self, filled: Slot) -> None:
        waiting = self._waiting
        if not waiting:
            return
        if waiting[0] is not filled:
            self._hold(filled)
            return
        while waiting and waiting[0].parts is not None:
            slot = waiting.popleft()
            self._out += slot.parts or ()
            if slot.held_bytes:
                self._let_go(slot.held_bytes)
        if self._out and not self._corked:
            # Corked from now on, until the turn is over.
            self._corked = True
            self._flush_later(self)

    def _hold(self, slot: Slot) -> None:
        assert slot.parts is not None
        slot.held_bytes = sum(len(part) for part in slot.parts if isinstance(part, BUFFERS))
        self.held_bytes += slot.held_bytes
        self._moved(slot.held_bytes)

    def _let_go(self, size: int) -> None:
        self.held_bytes -= size
        self._moved(-size)

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
        if self.held_bytes:
            self._let_go(self.held_bytes)
