"""Publish, PublishBatch and PublishStream.

A stream is read ahead: its requests are under way together, as many as the window has room for, and the
responses have the order of the requests. The Kafka client makes one batch per partition of what comes
meanwhile.

    read ──► [ request │ request │ request ]──► write      read waits while the window is full
                 under way, in order
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.client.cluster import ClusterError, OutgoingRecord, RecordPosition
from penstock.client.cluster.queues import DelayedPublish
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.memory import MemoryUsedUp
from penstock.server.grpc.message_proto import (
    DelayAccepted,
    DelayedMessage,
    PublishOutcome,
    acks_of,
    fill_result,
    outgoing_all,
)
from penstock.server.grpc.options import GrpcOptions
from penstock.server.grpc.statuses import Malformed, check_topics, checked, invalid
from penstock.v1 import penstock_pb2 as proto

# What a request counts besides its bytes: an empty message costs memory as well.
REQUEST_OVERHEAD_BYTES: Final = 256
# Of the one message that a request without `messages` is.
_SINGLE_FIELDS: Final = ("key", "value", "partition", "delay_ms", "deliver_at_ms", "priority", "ttl_ms")


class ByteWindow:
    """How many bytes may be under way; whoever comes first is served first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        """Wait for room; what is larger than the window waits until it is empty."""
        if not self._waiting and self._has_room(size):
            self._bytes += size
            return
        entered = asyncio.get_running_loop().create_future()
        self._waiting.append((size, entered))
        try:
            await entered
        except asyncio.CancelledError:
            if entered.done() and not entered.cancelled():
                self.leave(size)
            else:
                self._waiting = deque(one for one in self._waiting if one[1] is not entered)
                self._admit()
            raise

    def leave(self, size: int) -> None:
        """Make room."""
        self._bytes -= size
        self._admit()

    def _has_room(self, size: int) -> bool:
        return self._bytes == 0 or self._bytes + size <= self._bytes_max

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size, entered = self._waiting.popleft()
            if not entered.done():
                self._bytes += size
                entered.set_result(None)


class MessagePublisher:
    """Publishes messages of one topic, those for later as well."""

    def __init__(self, backend: GatewayBackend, now_ms: Callable[[], int], options: GrpcOptions) -> None:
        self._backend = backend
        self._now_ms = now_ms
        self._options = options
        self._all_streams = ByteWindow(options.publish_bytes_max)

    async def publish(self, topic: str, messages: Sequence[Any], acks: int) -> list[PublishOutcome]:
        """What became of each message. Errors of the request as a whole are raised."""
        kafka_acks = acks_of(acks)
        self._check(topic, messages)
        now_ms = self._now_ms()
        outgoing = outgoing_all(messages, now_ms)
        plain = [one for one in outgoing if type(one) is OutgoingRecord]
        if plain and len(plain) == len(outgoing):
            return list(await self._backend.publisher.publish(topic, plain, acks=kafka_acks))
        return await self._publish_each(topic, outgoing, kafka_acks)

    async def _publish_each(
        self, topic: str, outgoing: Sequence[OutgoingRecord | DelayedMessage | ClusterError], acks: int
    ) -> list[PublishOutcome]:
        """Some messages are for later, or wrong."""
        outcomes: dict[int, PublishOutcome] = {}
        records: dict[int, OutgoingRecord] = {}
        delayed: dict[int, DelayedMessage] = {}
        for position, one in enumerate(outgoing):
            if isinstance(one, OutgoingRecord):
                records[position] = one
            elif isinstance(one, DelayedMessage):
                delayed[position] = one
            else:
                outcomes[position] = one
        if records:
            stored = await self._backend.publisher.publish(topic, list(records.values()), acks=acks)
            outcomes.update(zip(records, stored, strict=True))
        if delayed:
            accepted = await self._delay(topic, list(delayed.values()))
            outcomes.update(zip(delayed, accepted, strict=True))
        return [outcomes[position] for position in range(len(outgoing))]

    def _check(self, topic: str, messages: Sequence[Any]) -> None:
        if not topic:
            raise invalid("topic: is missing")
        check_topics("topic", (topic,))
        if not messages:
            raise invalid("messages: there are none")
        if len(messages) > self._options.batch_max:
            raise invalid(f"messages: {len(messages)} are more than {self._options.batch_max}")

    async def _delay(self, topic: str, delayed: Sequence[DelayedMessage]) -> list[PublishOutcome]:
        """Store messages for later."""
        records = [
            DelayedPublish(topic, record.key, record.value, deliver_at_ms, record.headers, record.partition)
            for record, deliver_at_ms in delayed
        ]
        try:
            outcomes = await self._backend.queues.delay(records)
        except ClusterError as error:
            return [error] * len(delayed)
        return [one if isinstance(one, ClusterError) else DelayAccepted(one) for one in outcomes]

    async def stream(self, requests: AsyncIterable[Any], context: Any) -> None:
        """Respond to the requests of a stream until the client has sent its last."""
        window = ByteWindow(self._options.stream_bytes_max)
        under_way: asyncio.Queue[tuple[asyncio.Task[Any], int] | None]
        under_way = asyncio.Queue(self._options.stream_requests_max)
        malformed: Any = None
        used_up: MemoryUsedUp | None = None
        held = 0

        async def respond() -> None:
            nonlocal held
            while (one := await under_way.get()) is not None:
                response, size = one
                await context.write(await response)
                window.leave(size)
                held -= size
                self._all_streams.leave(size)
                self._backend.memory.give_back(size)

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(respond())
                try:
                    async for request in requests:
                        if isinstance(request, Malformed):
                            malformed = request
                            break
                        size = request.ByteSize() + REQUEST_OVERHEAD_BYTES
                        await window.enter(size)
                        await self._all_streams.enter(size)
                        held += size
                        self._backend.memory.add(size)
                        # A request that had to look for its topic would be overtaken by the next one.
                        with suppress(ClusterError):
                            check_topics("topic", (request.topic,))
                            await self._backend.cluster.topic(request.topic, create=True)
                        await under_way.put((tasks.create_task(self.response_to(request)), size))
                except MemoryUsedUp as error:
                    used_up = error
                await under_way.put(None)
        finally:
            # A stream that was cancelled has not written all its responses; the others need the room.
            self._all_streams.leave(held)
            self._backend.memory.give_back(held)
        if used_up is not None:
            raise used_up
        checked(malformed)

    async def response_to(self, request: Any) -> Any:
        """The response of a stream to one of its requests: an error is part of it."""
        messages = request.messages or (request,)
        try:
            if request.messages and (request.headers or any(map(request.HasField, _SINGLE_FIELDS))):
                raise invalid("messages: are given beside a message of the request itself")
            outcomes = await self.publish(request.topic, messages, request.acks)
        except ClusterError as error:
            outcomes = [error] * len(messages)
        response = proto.PublishResponse()
        if request.messages:
            fill_results(response.results, outcomes)
        else:
            fill_response(response, request.topic, outcomes[0])
        return response


def fill_results(results: Any, outcomes: Sequence[PublishOutcome]) -> None:
    """Append a PublishResult for each outcome."""
    add = results.add
    for outcome in outcomes:
        if isinstance(outcome, RecordPosition):
            result = add()
            result.partition, result.offset, result.timestamp_ms = outcome
        else:
            fill_result(add(), outcome)


def fill_response(response: Any, topic: str, outcome: PublishOutcome) -> None:
    """Write the outcome of one message."""
    fill_result(response, outcome)
    if isinstance(outcome, RecordPosition) and outcome.offset >= 0:
        response.id = f"{topic}/{outcome.partition}/{outcome.offset}"
