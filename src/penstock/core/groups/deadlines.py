"""When to look at which group again.

There is one entry per group, not one per member: a heartbeat only moves the member's own
deadline forward and leaves the entry where it is. When the entry comes up, the group is
asked what is really due and when to come back. A hundred members with a session of 30 s
thus cost one look at the group about every 30 s, however often they send heartbeats.
"""

import heapq

from penstock.core.model import Instant


class Deadlines:
    """The earliest moment at which each group may have something to do."""

    __slots__ = ("_armed", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, str]] = []
        self._armed: dict[str, Instant] = {}

    def arm(self, group_id: str, at: Instant) -> None:
        """Come back at `at`, unless an earlier visit is planned already."""
        armed = self._armed.get(group_id)
        if armed is None or at < armed:
            self._armed[group_id] = at
            heapq.heappush(self._heap, (at, group_id))

    def next(self) -> Instant | None:
        """The next visit; it may turn out that nothing is due yet."""
        self._drop_overtaken()
        return self._heap[0][0] if self._heap else None

    def pop(self, now: Instant) -> str | None:
        """A group whose visit is due; the caller arms it again."""
        self._drop_overtaken()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, group_id = heapq.heappop(self._heap)
        del self._armed[group_id]
        return group_id

    def _drop_overtaken(self) -> None:
        # An earlier visit has been planned after this entry was made.
        while self._heap and self._armed.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
