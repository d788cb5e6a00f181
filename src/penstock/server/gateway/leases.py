"""Leases that clients of a gateway hold: known from when they are granted, and given back by whoever goes."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from penstock.client.cluster import ClusterError, QueueClient
from penstock.client.received import Received
from penstock.core.protocol.messages.queue_settle import RELEASE, RETURN
from penstock.observability import log

RECEIPTS_MAX: Final = 1_000
# Leases that one client holds, at most; older ones end by themselves.
HELD_MAX: Final = 20_000
# How long a receive that is not wanted any more may take to say what it has leased; one that still waits then
# has leased nothing, and its connection ends with it.
RESPONSE_SECONDS: Final = 0.2
RELEASE_SECONDS: Final = 10.0


async def receive(queues: QueueClient, receipts: list[str], *request: Any, **choices: Any) -> Received:
    """As `QueueClient.receive`; the receipts of what it leases are added to a list, cancelled or not."""
    receiving = asyncio.get_running_loop().create_task(queues.receive(*request, **choices))
    try:
        received = await asyncio.shield(receiving)
    except asyncio.CancelledError:
        await asyncio.wait((receiving,), timeout=RESPONSE_SECONDS)
        receiving.cancel()
        await asyncio.wait((receiving,))
        if not receiving.cancelled() and receiving.exception() is None:
            receipts += [each.receipt for each in receiving.result().records]
        raise
    receipts += [each.receipt for each in received.records]
    return received


class HeldLeases:
    """What one client has and did not settle: receipts and their groups, the oldest first."""

    def __init__(self, queues: QueueClient) -> None:
        self._queues = queues
        self._groups: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, group: str, receipts: Sequence[str]) -> None:
        self._groups.update(dict.fromkeys(receipts, group))
        while len(self._groups) > HELD_MAX:
            del self._groups[next(iter(self._groups))]

    def adopt(self, others: "HeldLeases") -> None:
        """The client came back, and has what it had."""
        self._groups = {**others._groups, **self._groups}
        others._groups = {}

    def settled(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            self._groups.pop(receipt, None)

    async def give_back(self, group: str, receipts: Sequence[str]) -> None:
        """Nobody has worked on these."""
        self.settled(receipts)
        await self._end(group, receipts, RETURN)

    async def give_all_back(self) -> None:
        """The client has said goodbye."""
        await self._end_all(RETURN)

    async def fail_all(self) -> None:
        """The client was lost: these deliveries have failed."""
        await self._end_all(RELEASE, delay_ms=0, reason="the consumer was lost")

    async def _end_all(self, action: int, **details: Any) -> None:
        by_group: dict[str, list[str]] = {}
        for receipt, group in self._groups.items():
            by_group.setdefault(group, []).append(receipt)
        self._groups = {}
        for group, receipts in by_group.items():
            await self._end(group, receipts, action, **details)

    async def _end(self, group: str, receipts: Sequence[str], action: int, **details: Any) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for start in range(0, len(receipts), RECEIPTS_MAX):
                    some = receipts[start : start + RECEIPTS_MAX]
                    await self._queues.settle(group, action, some, **details)
        except (ClusterError, TimeoutError) as error:
            # They end by themselves.
            log.info("gateway.release_failed", group=group, messages=len(receipts), error=str(error))
