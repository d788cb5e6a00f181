"""A request for very many rows as several commands to a coordinator, one after the other.

A coordinator decides a command in one go, however many rows it has: so it gets them in portions, each in
a turn of its own, and the next one when there is a reply. A request of the usual size is one portion.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from penstock.server.kafka.request import Request

R = TypeVar("R")
Reply = TypeVar("Reply")
# A coordinator takes some microseconds for each.
PORTION_ROWS: Final = 500


class Portions(Generic[R, Reply]):
    """Submits the rows of one request.

    `submit` is called with a portion and the callback of its command. `take` gets each portion with its
    reply, and `done` is called after the last one; both perhaps before `start` returns.
    """

    __slots__ = ("_call", "_done", "_portion_rows", "_rows", "_start", "_submit", "_take")

    def __init__(
        self,
        call: Request,
        rows: Sequence[R],
        submit: Callable[[Sequence[R], Callable[[Reply], None]], None],
        take: Callable[[Sequence[R], Reply], None],
        done: Callable[[], None],
        portion_rows: int = PORTION_ROWS,
    ) -> None:
        self._call = call
        self._rows = rows
        self._submit = submit
        self._take = take
        self._done = done
        self._portion_rows = portion_rows
        self._start = 0

    def start(self) -> None:
        portion = self._rows[self._start : self._start + self._portion_rows]
        # A callback of its own for each: coordinators distinguish commands that wait by it.
        self._submit(portion, lambda reply: self._replied(portion, reply))

    def _replied(self, portion: Sequence[R], reply: Reply) -> None:
        self._take(portion, reply)
        self._start += len(portion)
        if self._start >= len(self._rows):
            self._done()
        elif self._call.is_open:
            self._call.connection.soon(self.start)
