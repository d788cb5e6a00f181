"""Ending a process that was told to stop and is stuck.

A disk that hangs keeps the loop's thread inside a call that no timer of the loop can end, and
a disk thread keeps the interpreter from leaving. What was acknowledged is on the disk by
then or never will be: waiting longer helps nobody, and a supervisor of processes would kill
us anyway.
"""

import os
import threading
from collections.abc import Callable

from penstock.core.model import SECOND
from penstock.observability import log

STUCK, WOUND_DOWN = 1, 0


class LastResort:
    """Ends the process after a while, from a thread of its own, unless it is called off."""

    def __init__(self, after_ns: int, leave: Callable[[int], None] = os._exit) -> None:
        self._after_ns = after_ns
        self._leave = leave
        self._timer: threading.Timer | None = None
        self._code = STUCK

    def arm(self) -> None:
        """The process has been told to stop: its time runs from now on."""
        if self._timer is None:
            self._timer = threading.Timer(self._after_ns / SECOND, self._fire)
            self._timer.daemon = True
            self._timer.start()

    def wound_down(self) -> None:
        """All that matters is done; what may still hang is nobody's loss."""
        self._code = WOUND_DOWN

    def call_off(self) -> None:
        """The process has come to its end by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        if self._code is STUCK:
            log.error("node.stop_cut_short")
        self._leave(self._code)
