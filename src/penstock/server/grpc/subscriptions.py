"""Subscribe: messages to a client for as long as it reads.

In queue mode a message is *in flight* from when it is leased until the client settles it, through this
server, or its lease ends. The stream takes no more than the client allows to be in flight. What the client
has when the stream ends goes back to the queue at once. That delivery counts, because a client that crashed
looks the same as one that left: a message which ends every client is dead-lettered some time. What was not
sent yet, and what a server that stops takes back, does not count.

In log mode each partition is read ahead by one read, and its records wait until the client reads.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.client.cluster import ClusterError, QuotaExceeded, ReadRecords
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.leases import HeldLeases, receive
from penstock.server.grpc.message_proto import Place, fill_leased, fill_logged
from penstock.v1 import penstock_pb2 as proto

# How long a receive waits at the broker.
WAIT_MS: Final = 5_000
# Reads of all partitions that are ahead of the client.
READS_AHEAD: Final = 2
READ_BYTES_MIN: Final = 64 << 10


class InFlight:
    """Messages that a client has and did not settle, by receipt, and when their leases end."""

    def __init__(self, messages_max: int, owners: "dict[str, InFlight]") -> None:
        self._messages_max = messages_max
        self._owners = owners
        self._lease_seconds = 0.0
        self._ends: dict[str, float] = {}
        self._room = asyncio.Event()

    def add(self, receipts: Sequence[str], received_at: float, lease_seconds: float) -> None:
        """Messages that were leased at `received_at` or later."""
        self._lease_seconds = lease_seconds
        for receipt in receipts:
            self._ends[receipt] = received_at + lease_seconds
            self._owners[receipt] = self

    def settle(self, receipt: str) -> None:
        """The client has no more to do with a message."""
        if self._ends.pop(receipt, None) is not None:
            del self._owners[receipt]
            self._room.set()

    def renew(self, receipt: str, now: float, lease_seconds: float | None) -> None:
        """The lease of a message begins anew."""
        if self._ends.pop(receipt, None) is not None:
            self._ends[receipt] = now + (self._lease_seconds if lease_seconds is None else lease_seconds)

    def take_all(self) -> list[str]:
        """What is in flight, and nothing is from now on."""
        receipts = list(self._ends)
        for receipt in receipts:
            self.settle(receipt)
        return receipts

    async def room(self) -> int:
        """Wait until there is room for a message; returns for how many."""
        now = asyncio.get_running_loop().time
        while len(self._ends) >= self._messages_max:
            self._room.clear()
            self._forget_ended(now())
            if len(self._ends) < self._messages_max:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(self._ends.values())):
                    await self._room.wait()
        return self._messages_max - len(self._ends)

    def _forget_ended(self, now: float) -> None:
        for receipt in [receipt for receipt, end in self._ends.items() if end <= now]:
            self.settle(receipt)


class Subscriptions:
    """The streams of one server."""

    def __init__(self, backend: GatewayBackend, delivery_bytes_max: int) -> None:
        self._backend = backend
        self._bytes_max = delivery_bytes_max
        self._owners: dict[str, InFlight] = {}

    def settled(self, receipts: Sequence[str]) -> None:
        """Make room in the streams that delivered these."""
        for receipt in receipts:
            if (stream := self._owners.get(receipt)) is not None:
                stream.settle(receipt)

    def renewed(self, receipts: Sequence[str], lease_seconds: float | None) -> None:
        """Keep these in flight for longer."""
        now = asyncio.get_running_loop().time()
        for receipt in receipts:
            if (stream := self._owners.get(receipt)) is not None:
                stream.renew(receipt, now, lease_seconds)

    async def deliver_queue(self, request: Any, consumer: str, in_flight_max: int, context: Any) -> None:
        """Queue mode, until it is cancelled."""
        in_flight = InFlight(in_flight_max, self._owners)
        loop = asyncio.get_running_loop()
        lease_ms = request.lease_ms if request.HasField("lease_ms") else -1
        batch_max = max(1, request.batch_max)
        receipts: list[str] = []
        sent = 0
        try:
            while True:
                room = await in_flight.room()
                received_at = loop.time()
                receipts.clear()
                sent = 0
                received = await receive(
                    self._backend.queues,
                    receipts,
                    request.group,
                    consumer,
                    request.topics,
                    records_max=min(room, batch_max if batch_max > 1 else room),
                    bytes_max=self._bytes_max,
                    wait_ms=WAIT_MS,
                    lease_ms=lease_ms,
                )
                elements = proto.Message()
                fill_leased(elements.messages, received.records, receipts)
                for part in _parts(elements, batch_max):
                    # Before it is sent: the client may settle a message before we hear that it has it.
                    end = sent + max(1, len(part.messages))
                    in_flight.add(receipts[sent:end], received_at, received.lease_ms / 1_000)
                    sent = end
                    await context.write(part)
        finally:
            held = HeldLeases(self._backend.queues)
            await held.give_back(request.group, receipts[sent:])
            held.add(request.group, in_flight.take_all())
            if self._backend.stopping.is_set():
                await held.give_all_back()
            else:
                await held.fail_all()

    async def deliver_log(
        self, starts: Mapping[Place, int], records_max: int, batch_max: int, context: Any, *, reset: int
    ) -> None:
        """Log mode: these partitions from these offsets on, or from `reset`, until it is cancelled."""
        reads: asyncio.Queue[Any] = asyncio.Queue(READS_AHEAD)
        # Every partition may have one read that waits for the client.
        bytes_max = max(READ_BYTES_MIN, self._bytes_max // len(starts))

        async def follow(place: Place, offset: int) -> None:
            try:
                while True:
                    read = await self._read_on(
                        place, offset, reset=reset, count=records_max, bytes_max=bytes_max, wait_ms=WAIT_MS
                    )
                    offset = read.next_offset
                    if read.records:
                        elements = proto.Message()
                        fill_logged(elements.messages, place, read.records)
                        await reads.put(elements)
            except ClusterError as error:
                await reads.put(error)

        async with asyncio.TaskGroup() as tasks:
            followers = [tasks.create_task(follow(*start)) for start in starts.items()]
            while True:
                elements = await reads.get()
                if isinstance(elements, ClusterError):
                    for task in followers:
                        task.cancel()
                    break
                await _write(context, elements, batch_max)
        raise elements

    async def _read_on(self, place: Place, offset: int, **limits: Any) -> ReadRecords:
        """What follows, as soon as the caller's quota allows it: a stream does not end for that."""
        while True:
            try:
                return await self._backend.reader.read_on(*place, offset, **limits)
            except QuotaExceeded as over:
                await asyncio.sleep(over.seconds)


async def _write(context: Any, elements: Any, batch_max: int) -> None:
    for part in _parts(elements, batch_max):
        await context.write(part)


def _parts(elements: Any, batch_max: int) -> Iterator[Any]:
    """The messages of `elements` one by one, or as many at a time as the client wants."""
    messages = elements.messages
    if batch_max <= 1:
        yield from messages
    elif len(messages) <= batch_max:
        if messages:
            yield elements
    else:
        for start in range(0, len(messages), batch_max):
            yield proto.Message(messages=messages[start : start + batch_max])
