"""How many bytes of answers a node keeps for readers that are slow, over all its connections.

An answer that exists cannot be refused; what can be refused is the next request. So a
connection is read while two things hold: the node's backlog is not used up, and its own part
is within its share, which shrinks as the rest does.

    used up by others ├──────────────────────────────┤ free ├── a share is a quarter of it ──┤

However many readers are stuck, those that come later find something left, and those that
read keep nothing here and are not held back before all of it is used. Files that wait to be
sent do not count: their bytes are not in memory.
"""

from collections.abc import Callable
from typing import TypeAlias

ANSWER_BYTES_MAX = 256 << 20
SHARE = 4
# So many connections are read again per turn of the loop: all at once would overshoot.
WOKEN_PER_TURN = 16
Wake: TypeAlias = Callable[[], None]


class Backlog:
    """Bytes that are held, and connections that wait for them to be less.

    `soon` calls back when the present turn is over.
    """

    def __init__(self, soon: Callable[[Wake], object], bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._soon = soon
        self._bytes_max = bytes_max
        self._waiting: dict[Wake, None] = {}
        self._wake_set = False
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self._bytes_max

    def refuses(self, own_bytes: int) -> bool:
        """Whether one who holds so many bytes may add nothing now."""
        free = self._bytes_max - self.held_bytes
        return free <= 0 or own_bytes * SHARE > free

    def moved(self, change: int) -> None:
        """Somebody holds so much more, or less."""
        self.held_bytes += change
        assert self.held_bytes >= 0, "more was let go than was held"
        if change < 0:
            self._wake_soon()

    def wait(self, wake: Wake) -> None:
        """Call `wake` when the backlog is no longer full: in the order of these calls."""
        self._waiting[wake] = None
        self._wake_soon()

    def forget(self, wake: Wake) -> None:
        """Whoever waited is gone."""
        self._waiting.pop(wake, None)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def _wake_soon(self) -> None:
        if self._waiting and not self._wake_set and not self.is_full:
            self._wake_set = True
            self._soon(self._wake)

    def _wake(self) -> None:
        self._wake_set = False
        for wake in list(self._waiting)[:WOKEN_PER_TURN]:
            if self.is_full:
                return
            del self._waiting[wake]
            wake()
        self._wake_soon()
