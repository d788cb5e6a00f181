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
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            resident = Path(f"/proc/{one}/statm").read_text().split()[1]
        except (OSError, IndexError):
            continue
        cpu_ns += (int(fields[11]) + int(fields[12])) * 1_000_000_000 // TICKS_PER_SECOND
        rss_bytes += int(resident) * PAGE_BYTES
    return Usage(cpu_ns, rss_bytes)


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
