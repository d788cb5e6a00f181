"""A piece of work and who waits for it."""

from collections.abc import Callable
from typing import Any

from penstock.runtime.timers import Deliver


class SpawnedJob:
    """Carries one outcome to its owner, unless the owner lost interest."""

    __slots__ = ("_deliver", "_done", "_failed", "is_cancelled")

    def __init__(
        self, deliver: Deliver, done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self._deliver = deliver
        self._done = done
        self._failed = failed
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def succeed(self, result: object) -> None:
        if not self.is_cancelled:
            self._deliver(self._done, result)

    def fail(self, why: Exception) -> None:
        if not self.is_cancelled:
            self._deliver(self._failed, why)
