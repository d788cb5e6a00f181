"""How much memory requests and responses of a gateway may take, whichever server they came by.

    request body, as it is read     taken; refused when there is no room, before the next part is read
    response, as it is written      counted; what was received already cannot be refused any more
    response that nobody reads      counted for as long as it waits in the socket's buffer

While the budget is used up, new requests are refused, with the advice to try again.
"""

import asyncio
from typing import Final

from penstock.observability import log

NOTED_SECONDS: Final = 10.0
RETRY_AFTER_SECONDS: Final = 1


class MemoryUsedUp(Exception):
    """There is no room for a request: it may be sent again in a moment."""


class MemoryBudget:
    """The bytes that all requests and responses hold together; used inside one event loop."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._noted_at = float("-inf")
        self.used_bytes = 0

    @property
    def is_used_up(self) -> bool:
        return self.used_bytes >= self.bytes_max

    def has_room(self, size: int) -> bool:
        return self.used_bytes + size <= self.bytes_max

    def take(self, size: int) -> None:
        """Count bytes of a request; MemoryUsedUp if there is no room for them."""
        if not self.has_room(size):
            raise self.refusal()
        self.used_bytes += size

    def add(self, size: int) -> None:
        """Count bytes that are there already."""
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        self.used_bytes -= size

    def refusal(self) -> MemoryUsedUp:
        """Why a request is refused; written to the log now and then."""
        now = asyncio.get_running_loop().time()
        if now - self._noted_at >= NOTED_SECONDS:
            self._noted_at = now
            log.warning("gateway.memory_used_up", used_bytes=self.used_bytes, bytes_max=self.bytes_max)
        return MemoryUsedUp(
            f"requests and responses take {self.used_bytes} of {self.bytes_max} bytes"
            " (rest.in_flight_bytes_max)"
        )


class MemoryShare:
    """What one request holds of the budget, until it is over."""

    __slots__ = ("_budget", "_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._bytes = 0

    def take(self, size: int) -> None:
        """As `MemoryBudget.take`."""
        self._budget.take(size)
        self._bytes += size

    def add(self, size: int) -> None:
        """As `MemoryBudget.add`."""
        self._budget.used_bytes += size
        self._bytes += size

    def give_back(self, size: int) -> None:
        """Of a request that is read in parts: this one is done with."""
        self._budget.used_bytes -= size
        self._bytes -= size

    def end(self, _: object = None) -> None:
        """The request is over; also the callback of a task."""
        self._budget.used_bytes -= self._bytes
        self._bytes = 0
