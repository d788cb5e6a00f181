"""Memory of messages that are not complete, which gRPC reads by itself and says nothing of.

    what the process had when the port was opened
    what requests hold that are known, and what was made of them
    the rest                                         messages that are not complete

When the rest is too much, calls that wait for a message end, those of one address at a time, until it is
less. If nobody is left who waits for long and it is not less, it was something else, and counts no more.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.observability import log
from penstock.runtime.heap import give_back, resident_bytes
from penstock.server.gateway.memory import MemoryBudget
from penstock.server.grpc.calls import PATIENCE_SECONDS, IncomingMessages

CHECK_SECONDS: Final = 0.1
# As many as the patience with a message, and some more for what is freed late.
VAIN_CHECKS_MAX: Final = 30
# A request is there as it came, as what was made of it, and as what is sent on.
COPIES: Final = 3


class MessageMemory:
    """Ends calls that wait for a message while the process has grown too much."""

    def __init__(
        self,
        messages: IncomingMessages,
        budget: MemoryBudget,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], None] = give_back,
    ) -> None:
        self._messages = messages
        self._budget = budget
        self._resident = resident
        self._trim = trim
        self._base_bytes = resident()
        self._vain_checks = 0

    async def watch(self) -> None:
        """Look ten times a second, until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.check()

    def check(self) -> None:
        """Look once."""
        if self._excess_bytes() <= 0:
            return
        # Freed memory may be there still.
        self._trim()
        excess_bytes = self._excess_bytes()
        if excess_bytes <= 0:
            return
        # So fast that a second is too long.
        is_urgent = excess_bytes > self._budget.bytes_max
        ended = self._messages.end_most(0.0 if is_urgent else PATIENCE_SECONDS)
        if ended:
            log.warning("grpc.messages_ended", calls=ended, excess_bytes=excess_bytes)
            self._vain_checks = 0
        else:
            self._vain_checks += 1
        if self._vain_checks >= VAIN_CHECKS_MAX:
            self._base_bytes += excess_bytes + self._budget.bytes_max
            self._vain_checks = 0

    def _excess_bytes(self) -> int:
        known = self._resident() - COPIES * self._budget.used_bytes
        self._base_bytes = min(self._base_bytes, max(known, 0))
        return known - self._base_bytes - self._budget.bytes_max
