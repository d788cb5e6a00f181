"""How many bytes of half-received requests a node holds at most, over all its connections.

A handler claims the buffer of a large request here before it is allocated. Whoever gets none
pauses its pipe until others have given theirs back: the bytes wait in the kernel, and hold
their client back.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

REQUEST_BYTES_MAX = 256 << 20
Wake: TypeAlias = Callable[[], None]


class Budget:
    """Bytes to be claimed and given back. `soon` calls back when the present turn is over."""

    def __init__(self, soon: Callable[[Wake], object], bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self._soon = soon
        self._bytes_max = bytes_max
        self._waiting: deque[Wake] = deque()
        self._thrift: list[Callable[[], None]] = []
        self._wake_set = False
        self.claimed_bytes = 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for bytes."""
        return bool(self._waiting)

    def spare(self, thrift: Callable[[], None]) -> None:
        """Call `thrift` when bytes run out: it gives back what is only kept for later."""
        self._thrift.append(thrift)

    def claim(self, size: int) -> bool:
        """Whether so many bytes may be used; somebody may always use as many as one frame has."""
        if self._is_free(size):
            self.claimed_bytes += size
            return True
        for give_back in self._thrift:
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
