"""What a process and its children use, from /proc."""

import os
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """CPU time since the start, and memory that is resident now."""

    cpu_ns: int
    rss_bytes: int


def usage_of(pid: int) -> Usage:
    """The usage of a process with all below it (a broker has helpers); ended ones count nothing."""
    cpu_ns = rss_bytes = 0
    for one in [pid, *_children(pid)]:
        try:
            resident = Path(f"/proc/{one}/statm").read_text().split()[1]
            cpu_ns += _cpu_ns(one)
        except (OSError, IndexError):
            continue
        rss_bytes += int(resident) * PAGE_BYTES
    return Usage(cpu_ns, rss_bytes)


def _cpu_ns(pid: int) -> int:
    """The scheduler's own account, thread by thread.

    `stat` counts who runs when the clock ticks: a process that wakes up with the ticks, as one
    that waits for a disk does, seems to use several times what it does.
    """
    try:
        return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // TICKS_PER_SECOND


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(word) for word in listing.read_text().split()]
        except OSError:
            continue
        for child in direct:
            found += [child, *_children(child)]
    return found
