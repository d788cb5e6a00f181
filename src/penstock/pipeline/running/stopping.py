"""SIGTERM and SIGINT ask for a stop; a second one insists."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

ASKING = (signal.SIGTERM, signal.SIGINT)


class StopAsked(BaseException):
    """Somebody asked for a stop before there was anything to stop in order."""


class StopSignals:
    """Takes the signals while the context lasts, and remembers that one came."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: dict[int, Any] = {}
        self.interrupts = False

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.getsignal(number) for number in ASKING}
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def take(self) -> None:
        """Take the signals (back: Spark's context has a handler of its own for Ctrl-C)."""
        for number in ASKING:
            signal.signal(number, self._on_signal)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until a stop is asked for; answers whether it is."""
        return self._asked.wait(seconds)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self._asked.set()
        if self.interrupts:
            raise StopAsked
