"""How many descriptors this process may have, and what they are kept for.

    0 ───────────── half ─────────────────────── limit - reserve ────── limit - some ─── limit
    files and clients │ idle logs' files are closed │ no new clients, for logs │ for checkpoints

The kernel gives out the lowest free number. So the number of a new descriptor says how many are in use at
least, and nobody has to count.

The soft limit, often 1,024, is a default for programs that use `select`; it is raised to the hard one.
"""

import math
import os
import resource
import select
from dataclasses import dataclass
from pathlib import Path

from penstock.core.model import PenstockError

# What a node without logs and clients needs, with some room for what it opens for a moment.
LEAST = 96
RESERVE_MIN, RESERVE_MAX = 32, 4_096
CHECKPOINTS_MIN, CHECKPOINTS_MAX = 24, 256
READERS_MAX = 256
SYNCED_MAX = 1_024
OPEN = Path("/proc/self/fd")


class TooFewDescriptors(PenstockError):
    """The limit on open files leaves no room for a node."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"this process may open {limit} files, and a node needs {LEAST} at least, better 10,000: "
            "raise the hard limit, with `ulimit -Hn`, LimitNOFILE= of a systemd unit, or "
            "--ulimit nofile= of a container"
        )
        self.limit = limit


@dataclass(frozen=True, slots=True)
class DescriptorLimits:
    """What the descriptors of a process are for."""

    limit: int

    @property
    def clients_below(self) -> int:
        """A client whose descriptor is not below this number is turned away."""
        return self.limit - max(RESERVE_MIN, min(self.limit // 4, RESERVE_MAX))

    @property
    def short_from(self) -> int:
        """From this number on the files of idle logs are closed."""
        return self.limit // 2

    @property
    def kept_from(self) -> int:
        """From this number on no log gets one for its own file: the rest is for checkpoints and the like."""
        return self.limit - max(CHECKPOINTS_MIN, min(self.limit // 8, CHECKPOINTS_MAX))

    @property
    def readers_max(self) -> int:
        """How many files that are only read stay open, of each of a node's two views of its disk."""
        return max(4, min(READERS_MAX, self.limit // 16))

    @property
    def synced_max(self) -> int:
        """How many files the sync helper, which has the same limit, keeps open."""
        return max(8, min(SYNCED_MAX, self.limit // 2))


def raise_limit() -> DescriptorLimits:
    """Raise the soft limit to the hard one; raises TooFewDescriptors if that is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some kernels have a limit of their own below the hard one.
            hard = soft
    if hard == resource.RLIM_INFINITY:
        hard = os.sysconf("SC_OPEN_MAX")
    if 0 <= hard < LEAST:
        raise TooFewDescriptors(hard)
    return DescriptorLimits(hard)


def present_limits() -> DescriptorLimits:
    """The limits of a process that is somebody else's, which are left alone."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorLimits(soft if soft >= 0 else 1 << 20)


def count_open() -> int:
    """How many descriptors this process has open; 0 where nobody can tell."""
    try:
        return len(os.listdir(OPEN)) - 1
    except OSError:
        return 0


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or an end, within so long.

    `select` cannot tell it of a descriptor above 1,023, which a node with many clients has.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0, math.ceil(seconds * 1_000))))
