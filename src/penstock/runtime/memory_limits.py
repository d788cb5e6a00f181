"""Limits on the memory of a node's connections: incomplete requests, and unread responses.

Requests: a connection claims the buffer of a large request before it is allocated. Without a claim
it pauses reads until others have given theirs back: the bytes wait in the kernel, and TCP slows the
client down.

Responses: a response that exists must be kept; what can be delayed is the next request. So a
connection is read while two things hold: the node's limit is not used up, and its own part is
within its share, which shrinks as the free part does.

    used by others ├──────────────────────────────┤ free ├── a share is a quarter of it ──┤

However many clients do not read, those that come later find something left, and those that read
hold nothing here and are not paused before all of it is used. Files that wait to be sent do not
count: their bytes are not in memory.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

REQUEST_BYTES_MAX = 256 << 20
Wake: TypeAlias = Callable[[], None]
ANSWER_BYTES_MAX = 256 << 20
SHARE = 4
# How many connections resume per turn of the loop: all at once would overshoot.
WOKEN_PER_TURN = 16


class RequestMemoryLimit:
    """Bytes of requests, to be claimed and given back. `soon` calls back after the present turn."""

    def __init__(self, soon: Callable[[Wake], object], bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self._soon = soon
        self._bytes_max = bytes_max
        self._waiting: deque[Wake] = deque()
        self._on_exhausted: list[Callable[[], None]] = []
        self._wake_set = False
        self.claimed_bytes = 0

    @property
    def is_wanted(self) -> bool:
        """Whether a connection waits for bytes."""
        return bool(self._waiting)

    def on_exhausted(self, thrift: Callable[[], None]) -> None:
        """Call `thrift` when bytes run out: it gives back buffers that are only kept for later."""
        self._on_exhausted.append(thrift)

    def claim(self, size: int) -> bool:
        """Claim `size` bytes; returns whether they may be used. One frame is always allowed."""
        if self._is_free(size):
            self.claimed_bytes += size
            return True
        for give_back in self._on_exhausted:
            give_back()
        if self._is_free(size):
            self.claimed_bytes += size
            return True
        return False

    def _is_free(self, size: int) -> bool:
        return not self.claimed_bytes or self.claimed_bytes + size <= self._bytes_max

    def give_back(self, size: int) -> None:
        self.claimed_bytes -= size
        assert self.claimed_bytes >= 0, "more was given back than claimed"
        if self._waiting and not self._wake_set:
            self._wake_set = True
            self._soon(self._wake)

    def wait(self, wake: Wake) -> None:
        """Call `wake` when something was given back; it may have to wait again."""
        self._waiting.append(wake)

    def _wake(self) -> None:
        self._wake_set = False
        waiting, self._waiting = self._waiting, deque()
        for wake in waiting:
            wake()


class ResponseMemoryLimit:
    """Bytes of responses in memory, and connections that wait until they are fewer.

    `soon` calls back after the present turn.
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
        """Whether a connection that holds `own_bytes` must wait before its next request."""
        free = self._bytes_max - self.held_bytes
        return free <= 0 or own_bytes * SHARE > free

    def moved(self, change: int) -> None:
        """Count a change in the bytes held."""
        self.held_bytes += change
        assert self.held_bytes >= 0, "more was released than was held"
        if change < 0:
            self._wake_soon()

    def wait(self, wake: Wake) -> None:
        """Call `wake` when the limit is no longer reached: in the order of these calls."""
        self._waiting[wake] = None
        self._wake_soon()

    def forget(self, wake: Wake) -> None:
        """Stop waiting: the connection has ended."""
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
