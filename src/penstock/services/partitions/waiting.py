"""Who waits for which offset, and how it ends for those who wait too long."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from penstock.core.model import Instant, Offset, Refused

# Refused with NOT_LEADER, the records may be in the log or not; with any other reason they are,
# and may or may not reach the other replicas.
Acknowledged: TypeAlias = Callable[[Refused | None], None]


# Who waits until everything below an offset is safe, and until when; a bare tuple, since every
# small Produce makes one.
Waiter: TypeAlias = tuple[Offset, Acknowledged, Instant | None]


def release(waiting: deque[Waiter], reached: Offset) -> None:
    """Tell those whose time has come, in the order of offsets."""
    while waiting and waiting[0][0] <= reached:
        waiting.popleft()[1](None)


def take_overdue(waiting: deque[Waiter], now: Instant) -> tuple[list[Waiter], Instant | None]:
    """Take out those who have waited too long; answers them, and the next deadline of the others."""
    overdue, kept = [], []
    earliest: Instant | None = None
    for waiter in waiting:
        deadline = waiter[2]
        if deadline is not None and deadline <= now:
            overdue.append(waiter)
            continue
        kept.append(waiter)
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
    if overdue:
        waiting.clear()
        waiting.extend(kept)
    return overdue, earliest
