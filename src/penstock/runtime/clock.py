"""The machine's own clocks and randomness."""

import os
import time
from collections.abc import Callable
from typing import cast

from penstock.core.model import MILLISECOND, Instant, Timestamp


class MachineClock:
    """CLOCK_MONOTONIC and CLOCK_REALTIME."""

    def __init__(self) -> None:
        # The function itself, without one of ours around it: every request asks several times.
        self.now = cast(Callable[[], Instant], time.monotonic_ns)

    def wall(self) -> Timestamp:
        return Timestamp(time.time_ns() // MILLISECOND)


class MachineEntropy:
    """The kernel's generator."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)
