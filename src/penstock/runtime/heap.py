"""Memory that was freed, given back to the system.

What Python frees goes to the C library, which keeps it for the next one who asks. After an unusual hour, such
as ten thousand connections or records that unpack to much, that is most of what a process has, and nobody
will ask for it again.

    resident bytes   ▁▁▂▅▇▇▇▇▇▇▇▇▇▃▃▃▃    freed at ▲, given back at ▼
                           ▲     ▼

Giving back costs some milliseconds, and whoever needs memory next has to get it from the system. So a node
looks now and then, does nothing while it is about as large as at its start, and the less it got by it the
longer it waits for the next time. So does its gateway. A worker process does it when it has nothing to do.

What ended in a cycle, such as a connection and its buffers, is not free before cycles are collected, and that
happens after so many new objects only: never, where nothing happens any more. A gateway keeps little for long
and has them collected first. A node does not: to look at all that it keeps would hold its loop.

On C libraries without `malloc_trim` (musl, macOS) nothing of this is done.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable

# A node that has grown by less than this since its start keeps what it has.
GROWTH_BYTES_MIN = 16 << 20
# As often as this, as long as so much comes of it; if not, half as often each time.
INTERVAL_SECONDS_MIN, INTERVAL_SECONDS_MAX = 4.0, 64.0
WORTH_BYTES = 4 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _malloc_trim() -> Callable[[int], object] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None


_trim = _malloc_trim()


def give_back() -> None:
    """Return free memory to the system."""
    if _trim is not None:
        _trim(0)


def resident_bytes() -> int:
    """The memory of this process; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class HeapTrimmer:
    """Gives memory back now and then, for as long as the loop runs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], None] = give_back,
        collect: Callable[[], object] | None = None,
    ) -> None:
        """`collect` frees what ended in cycles."""
        self._loop = loop
        self._resident = resident
        self._trim = trim
        self._collect = collect
        self._start_bytes = resident()
        self._interval_seconds = INTERVAL_SECONDS_MIN
        self._wait()

    def _wait(self) -> None:
        self._loop.call_later(self._interval_seconds, self.check)

    def check(self) -> None:
        """Give memory back if the process has grown."""
        before_bytes = self._resident()
        if before_bytes - self._start_bytes >= GROWTH_BYTES_MIN:
            if self._collect is not None:
                self._collect()
            self._trim()
            is_worth_it = before_bytes - self._resident() >= WORTH_BYTES
            longer = min(2 * self._interval_seconds, INTERVAL_SECONDS_MAX)
            self._interval_seconds = INTERVAL_SECONDS_MIN if is_worth_it else longer
        else:
            self._interval_seconds = INTERVAL_SECONDS_MIN
        self._wait()
