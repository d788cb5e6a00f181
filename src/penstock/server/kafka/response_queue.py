"""Responses leave in the order of the requests, however long each takes.

    requests    1  2  3  4          each gets a PendingResponse
    responses  [✓][ ][✓][ ]         1 leaves; 3 waits for 2, and is held in memory

What is released in one turn of the loop is sent by one system call: when the turn ends, or as soon
as nothing of this connection waits any more.
"""

from collections import deque
from collections.abc import Callable

from penstock.runtime.tcp import BUFFERS, Part, TcpConnection


class PendingResponse:
    """The place of one response in its connection's order."""

    __slots__ = ("abandoned", "held_bytes", "parts")

    def __init__(self) -> None:
        self.parts: list[Part] | None = None
        self.held_bytes = 0
        # Called if the connection ends before there is a response.
        self.abandoned: Callable[[], None] | None = None


class ResponseQueue:
    """The pending responses of one connection, in order.

    Every request is put at the end of `waiting`. While `is_corked`, what is
    released is collected in `out`, so that one system call can send it all.
    """

    __slots__ = ("_flush_later", "_moved", "_pipe", "held_bytes", "is_corked", "out", "waiting")

    def __init__(
        self,
        pipe: TcpConnection,
        flush_later: Callable[["ResponseQueue"], None],
        moved: Callable[[int], None],
    ) -> None:
        """`flush_later` calls `flush` at the end of this turn of the loop.

        `moved` is called with every change of `held_bytes`: responses that wait for an earlier one.
        """
        self._pipe = pipe
        self._flush_later = flush_later
        self._moved = moved
        self.held_bytes = 0
        self.waiting: deque[PendingResponse] = deque()
        self.out: list[Part] = []
        self.is_corked = False

    def fill(self, slot: PendingResponse, parts: list[Part]) -> None:
        """Set a response, once. It leaves as soon as everything before it has left."""
        assert slot.parts is None, "a response is set once"
        slot.parts = parts
        waiting = self.waiting
        if not waiting:
            return
        if waiting[0] is not slot:
            self._hold(slot)
            return
        while waiting and waiting[0].parts is not None:
            first = waiting.popleft()
            self.out += first.parts or ()
            if first.held_bytes:
                self._let_go(first.held_bytes)
        if not self.out or self.is_corked:
            return
        if not waiting:
            # Nothing could join it: a turn of the loop would only be waited for.
            self.flush()
        else:
            # Corked from now on, until the turn is over.
            self.is_corked = True
            self._flush_later(self)

    def _hold(self, slot: PendingResponse) -> None:
        assert slot.parts is not None
        slot.held_bytes = sum(len(part) for part in slot.parts if isinstance(part, BUFFERS))
        self.held_bytes += slot.held_bytes
        self._moved(slot.held_bytes)

    def _let_go(self, size: int) -> None:
        self.held_bytes -= size
        self._moved(-size)

    def flush(self) -> None:
        """Send what was released."""
        self.is_corked = False
        if self.out:
            out, self.out = self.out, []
            self._pipe.write(out)

    def abandon(self) -> None:
        """Forget every pending response: the connection has ended."""
        waiting, self.waiting = self.waiting, deque()
        for slot in waiting:
            if slot.parts is None and slot.abandoned is not None:
                slot.abandoned()
        self.out.clear()
        if self.held_bytes:
            self._let_go(self.held_bytes)
