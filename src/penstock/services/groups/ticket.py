"""Where an answer goes."""

from collections.abc import Callable
from typing import TypeAlias

from penstock.core.groups import Reply

Done: TypeAlias = Callable[[Reply], None]


class Ticket:
    """One request's place in line: whoever submits a command hears of its reply here, once.

    `done` may be called before `submit` returns.
    """

    __slots__ = ("done",)

    def __init__(self, done: Done) -> None:
        self.done = done
