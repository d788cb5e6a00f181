"""The machine's own clocks and randomness."""

import os
import time

from penstock.core.model import MILLISECOND, Instant, Timestamp


class MachineClock:
    """CLOCK_MONOTONIC and CLOCK_REALTIME."""

    def now(self) -> Instant:
        return Instant(time.monotonic_ns())

    def wall(self) -> Timestamp:
        return Timestamp(time.time_ns() // MILLISECOND)


class MachineEntropy:
    """The kernel's generator."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)
