"""WebSocket `/v1/ws`: enqueue, dequeue, acknowledge, and subscriptions with credits.

    client                                          server
      connect /v1/ws?consumer=ID  ───────────────►
                                  ◄───────────────  {"op": "welcome", "consumer": ID, …}
      {"op": "subscribe", "id": 1, "topic": "t", "group": "g", "credits": 100}
                                  ◄───────────────  {"op": "subscribed", "id": 1, "subscription": 1}
                                  ◄───────────────  {"op": "messages", "subscription": 1, "messages": […]}
      {"op": "ack", "id": 2, "group": "g", "receipts": […]}
      {"op": "credit", "subscription": 1, "credits": 50}

A text frame is one JSON object. A binary frame is the same object as MessagePack, with keys, values and
headers as bytes; what a binary frame asks for comes in binary frames. A frame with an `id` has one reply with
that `id`; replies come when they are ready, which may be in another order. An error is a reply, too.

With a group, messages are leased from queues; they have receipts. Without one they are read from the log, as
the consumer: its position is the offset that the group `consumer.ID` has committed, and moves with `ack`,
whose receipts are then the ids of messages (`topic/partition/offset`). A consumer that connects with its id
goes on there, on any node. The server never sends more messages than it has credits for.

Whoever closes the connection gives back what it has not settled, and those deliveries do not count. After a
connection that was lost, the consumer may come back with its id and still acknowledge; if it does not within
the session timeout, the deliveries have failed. A subscription that ends gives back what was on its way; what
was delivered is the client's until it settles it or goes.

Left out: subscriptions that survive a connection; whoever reconnects subscribes again.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.types import Message, Receive, Scope, Send

from penstock.client.cluster import LOG, ClusterError, Membership, QuotaExceeded
from penstock.client.cluster.publisher import OutgoingRecord, RecordPosition
from penstock.client.cluster.queues import DelayedPublish
from penstock.core.protocol.messages.queue_settle import ACKNOWLEDGE, REJECT, RELEASE, RENEW, RETURN
from penstock.core.queues.record_headers import PRIORITY, TTL_MS
from penstock.observability import log
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.callers import Caller
from penstock.server.gateway.leases import HeldLeases, receive
from penstock.server.gateway.members import Place, PollingMember
from penstock.server.gateway.memory import MemoryShare, MemoryUsedUp
from penstock.server.http.address_places import AddressPlaces, network_in
from penstock.server.http.array_limits import ArrayLimits
from penstock.server.http.message_json import (
    ACKS,
    HEADERS_MAX,
    INT32_MAX,
    TIME_MS_MAX,
    Acks,
    MessageBody,
    deliver_at_ms,
    outgoing,
    refused_field,
)
from penstock.server.http.operations import CALLER, backend_of
from penstock.server.http.problem import Problem, failed, invalid, invalid_json, no_memory, not_identified
from penstock.server.http.routes.groups import DELAY_MS_MAX, message_fields, read_assigned
from penstock.server.http.routes.publish import MESSAGES_PER_TURN

PATH = "/v1/ws"
BATCH_MAX = 10_000
RECEIPTS_MAX = 1_000
DELIVERED_MAX = 500
TOPICS_MAX = 100
NAME_CHARS_MAX = 200
CREDITS_MAX = 100_000
WAIT_MS_MAX = 60_000
# How long one question of a subscription waits at the broker.
STEP_WAIT_MS = 5_000
RETRY_SECONDS = 0.5
# Requests for messages that a busy subscription has under way.
WIDTH_MAX = 8
# Frames of a connection that are looked at in one turn of the loop.
FRAMES_PER_TURN = 32

# Close codes beside those of RFC 6455.
TRY_AGAIN_LATER = 1013
IDLE, TAKEN_OVER, TOO_MANY_OPERATIONS, TOO_MANY_CONNECTIONS, BAD_CONSUMER = 4408, 4409, 4429, 4503, 4400
NOT_AUTHENTICATED = 4401
GOODBYE = (1000, 1001, 1005)
# The gateway ends: its consumers go on at another one, with the leases that they have.
SERVICE_RESTART = 1012


class WebSocketLimits(NamedTuple):
    """Of one gateway, and of one connection."""

    connections_max: int = 2_000
    operations_max: int = 64
    subscriptions_max: int = 16
    idle_seconds: float = 600.0
    # How long a consumer whose connection was lost may take to come back.
    session_seconds: float = 30.0


Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Topics = Annotated[tuple[Name, ...], Meta(max_length=TOPICS_MAX)]
OperationId = int | str | None


class _Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    """One operation of a client."""

    id: OperationId = None


class BinaryMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to publish in a binary frame."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Annotated[dict[str, bytes | None], Meta(max_length=HEADERS_MAX)] = msgspec.field(
        default_factory=dict
    )
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None
    deliver_at: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    ttl_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None


class BinaryDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a binary frame to the client; `attempt` where it is leased."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: dict[str, Any]
    receipt: str
    attempt: int | UnsetType = UNSET


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored; nobody says the offset with `acks` none."""

    partition: int
    offset: int | None
    timestamp: int


class TextEnqueue(_Frame, frozen=True, tag="enqueue"):
    """Publish messages; `message` is for one."""

    topic: Name
    message: MessageBody | None = None
    messages: Annotated[tuple[MessageBody, ...], Meta(max_length=BATCH_MAX)] = ()
    acks: Acks = "all"


class BinaryEnqueue(_Frame, frozen=True, tag="enqueue"):
    """The same in a binary frame."""

    topic: Name
    message: BinaryMessage | None = None
    messages: Annotated[tuple[BinaryMessage, ...], Meta(max_length=BATCH_MAX)] = ()
    acks: Acks = "all"


class _From(_Frame, frozen=True):
    """Where messages come from: `topic` or `topics`; with a group from their queues."""

    topic: Name | None = None
    topics: Topics = ()
    group: Name | None = None
    lease_ms: Annotated[int, Meta(ge=1, le=DELAY_MS_MAX)] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        found = self.topics if self.topic is None else (self.topic, *self.topics)
        if not found:
            raise invalid("topic", "a `topic`, or `topics`, must be named")
        return found


class Dequeue(_From, frozen=True, tag="dequeue"):
    """The next messages, once."""

    max: Annotated[int, Meta(ge=1, le=DELIVERED_MAX)] = 1
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0


class Subscribe(_From, frozen=True, tag="subscribe"):
    """Messages as they come, as many as there are credits for."""

    credits: Annotated[int, Meta(ge=0, le=CREDITS_MAX)] = 0


class Credit(_Frame, frozen=True, tag="credit"):
    """So many messages more; there is no reply unless it is an error."""

    subscription: int
    credits: Annotated[int, Meta(ge=1, le=CREDITS_MAX)]


class Unsubscribe(_Frame, frozen=True, tag="unsubscribe"):
    """No more messages."""

    subscription: int


class Ack(_Frame, frozen=True, tag="ack"):
    """Messages are done; without a group, everything up to them."""

    receipts: Annotated[tuple[str, ...], Meta(min_length=1, max_length=RECEIPTS_MAX)]
    group: Name | None = None


class Nack(_Frame, frozen=True, tag="nack"):
    """Messages failed."""

    receipts: Annotated[tuple[str, ...], Meta(min_length=1, max_length=RECEIPTS_MAX)]
    group: Name
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] | None = None
    reason: Annotated[str, Meta(max_length=250)] = ""
    reject: bool = False


class Release(_Frame, frozen=True, tag="release"):
    """Nobody has worked on messages: others get them at once, and this delivery does not count."""

    receipts: Annotated[tuple[str, ...], Meta(min_length=1, max_length=RECEIPTS_MAX)]
    group: Name


class Renew(_Frame, frozen=True, tag="renew"):
    """Messages take longer."""

    receipts: Annotated[tuple[str, ...], Meta(min_length=1, max_length=RECEIPTS_MAX)]
    group: Name
    lease_ms: Annotated[int, Meta(ge=1, le=DELAY_MS_MAX)] | None = None


class Ping(_Frame, frozen=True, tag="ping"):
    """Whether anybody is there."""


class _AnyFrame(msgspec.Struct, frozen=True):
    """What an error replies to."""

    id: OperationId = None


_Common = Dequeue | Subscribe | Credit | Unsubscribe | Ack | Nack | Release | Renew | Ping
_TEXT = msgspec.json.Decoder(TextEnqueue | _Common)
_BINARY = msgspec.msgpack.Decoder(BinaryEnqueue | _Common)
_TEXT_ARRAYS = ArrayLimits(TextEnqueue | _Common)
_BINARY_ARRAYS = ArrayLimits(BinaryEnqueue | _Common, is_binary=True)
_TEXT_ID = msgspec.json.Decoder(_AnyFrame)
_BINARY_ID = msgspec.msgpack.Decoder(_AnyFrame)
_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


def _text_frame(text: str) -> Any:
    _TEXT_ARRAYS.check(text)
    return _TEXT.decode(text)


def _binary_frame(content: bytes) -> Any:
    _BINARY_ARRAYS.check(content)
    return _BINARY.decode(content)


class WebSocketEndpoint:
    """The ASGI application of `/v1/ws`."""

    def __init__(self, backend: GatewayBackend, limits: WebSocketLimits | None = None) -> None:
        self._backend = backend
        self._limits = limits or WebSocketLimits(session_seconds=backend.options.session_timeout_ms / 1_000)
        # By user and id: nobody takes over what somebody else has.
        self._sessions: dict[tuple[str, str], WebSocketSession] = {}
        # Consumers that were lost and may come back: what they had, and whether they have.
        self._lost: dict[tuple[str, str], tuple[HeldLeases, asyncio.Event]] = {}
        self._connections = 0
        self._of_addresses = AddressPlaces(backend.limits.address_share(self._limits.connections_max))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        if message["type"] != "websocket.connect":
            return
        await send({"type": "websocket.accept"})
        consumer, is_known = _consumer_of(scope["query_string"])
        caller: Caller | None = scope.get(CALLER)
        backend = backend_of(scope, self._backend)
        session = WebSocketSession(backend, self._limits, consumer, receive, send)
        if not 0 < len(consumer) <= NAME_CHARS_MAX:
            detail = f"a consumer's id has 1 to {NAME_CHARS_MAX} characters"
            await session.refuse(BAD_CONSUMER, invalid("consumer", detail))
            return
        if self._connections >= self._limits.connections_max:
            detail = f"there are {self._limits.connections_max} WebSocket connections already"
            await session.refuse(TOO_MANY_CONNECTIONS, Problem(503, "Too many connections", detail))
            return
        network = network_in(scope.get("state", {}))
        if not self._of_addresses.has_room(network):
            detail = f"your address has {self._of_addresses.places_max} WebSocket connections already"
            await session.refuse(TOO_MANY_CONNECTIONS, Problem(503, "Too many connections", detail))
            return
        if self._backend.memory.is_used_up:
            await session.refuse(TRY_AGAIN_LATER, no_memory(self._backend.memory.refusal()))
            return
        place = ("" if caller is None else caller.user), consumer
        before = self._sessions.get(place)
        if before is not None:
            before.end(TAKEN_OVER, Problem(409, "Taken over", "this consumer connected again"))
        self._sessions[place] = session
        if caller is None:
            await self._serve(place, network, session, is_known)
            return
        ending = asyncio.get_running_loop().create_task(_end_with(caller, session))
        try:
            await self._serve(place, network, session, is_known)
        finally:
            ending.cancel()

    async def _serve(
        self, consumer: tuple[str, str], network: str, session: "WebSocketSession", is_known: bool
    ) -> None:
        if consumer in self._lost:
            held, is_back = self._lost.pop(consumer)
            session.held.adopt(held)
            is_back.set()
        self._connections += 1
        self._of_addresses.take(network)
        try:
            code = await session.run(is_known)
        finally:
            self._connections -= 1
            self._of_addresses.give_back(network)
            is_last = self._sessions.get(consumer) is session
            if is_last:
                del self._sessions[consumer]
        if code in GOODBYE:
            await session.held.give_all_back()
        elif not is_last and consumer in self._sessions:
            self._sessions[consumer].held.adopt(session.held)
        elif code != SERVICE_RESTART and session.held:
            await self._await_return(consumer, session.held)

    async def _await_return(self, consumer: tuple[str, str], held: HeldLeases) -> None:
        """What a lost consumer had is its own for a while, and then goes to others."""
        is_back = asyncio.Event()
        self._lost[consumer] = held, is_back
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(event.wait()) for event in (is_back, self._backend.stopping)]
        try:
            seconds = self._limits.session_seconds
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            if self._lost.get(consumer, (None,))[0] is held:
                del self._lost[consumer]
        if not done:
            await held.fail_all()


async def _end_with(caller: Caller, session: "WebSocketSession") -> None:
    """End the connection of a caller that is nobody any more."""
    await caller.ended.wait()
    session.end(NOT_AUTHENTICATED, not_identified())


def _consumer_of(query: bytes) -> tuple[str, bool]:
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("consumer")
    return (given[0], True) if given else (f"ws-{secrets.token_hex(8)}", False)


class _Subscription:
    """Messages that a client waits for, and how many it takes."""

    def __init__(self, number: int, asked: Subscribe, is_binary: bool) -> None:
        self.number = number
        self.asked = asked
        self.is_binary = is_binary
        self.credits = asked.credits
        self.has_credits = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        # Receipts of messages that are leased and not sent yet.
        self.on_their_way: list[str] = []
        if self.credits:
            self.has_credits.set()

    def grant(self, messages: int) -> None:
        self.credits = min(self.credits + messages, CREDITS_MAX)
        self.has_credits.set()

    def spend(self, messages: int) -> None:
        self.credits -= messages
        if self.credits <= 0:
            self.has_credits.clear()


class WebSocketSession:
    """One connection."""

    def __init__(
        self,
        backend: GatewayBackend,
        limits: WebSocketLimits,
        consumer: str,
        receive: Receive,
        send: Send,
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._consumer = consumer
        self._receive = receive
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._operations = 0
        self._frames_read = 0
        self._subscriptions: dict[int, _Subscription] = {}
        self._last_number = 0
        self._is_closed = False
        self.held = HeldLeases(backend.queues)
        # The consumer as a reader of the log: a group of its own, without members.
        self._reader = PollingMember(Membership(f"consumer.{consumer}", "", LOG, -1, 0, (), {}))
        self._committed: dict[Place, int] = {}
        self._idle = self._loop.call_later(limits.idle_seconds, self._check_idle)
        self._heard_at = self._loop.time()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, is_known: bool) -> int:
        """Serve until the connection ends; returns the code that it was closed with."""
        welcome = {
            "op": "welcome",
            "consumer": self._consumer,
            "is_new": not is_known,
            "limits": self._shown_limits,
        }
        code = 1006
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._reply(welcome, False)
                code = await self._read_frames(self._tasks)
                self._is_closed = True
                raise _Ended
        except* _Ended:
            pass
        finally:
            self._is_closed = True
            self._idle.cancel()
        return code

    @property
    def _shown_limits(self) -> dict[str, int]:
        return {
            "frame_bytes": self._backend.limits.body_bytes_max,
            "operations": self._limits.operations_max,
            "subscriptions": self._limits.subscriptions_max,
        }

    def end(self, code: int, problem: Problem) -> None:
        """Say why, and close; a client that does not read holds nobody up."""
        if not self._is_closed and self._tasks is not None:
            self._is_closed = True
            self._tasks.create_task(self.refuse(code, problem))

    async def refuse(self, code: int, problem: Problem) -> None:
        self._is_closed = True
        self._idle.cancel()
        try:
            await self._write({"op": "error", **_error(problem)}, False)
            await self._send({"type": "websocket.close", "code": code, "reason": problem.body.detail[:100]})
        except (OSError, RuntimeError):
            # It is gone already.
            return

    async def _next_frame(self) -> Message:
        self._frames_read += 1
        if not self._frames_read % FRAMES_PER_TURN:
            # Those that have come already are received without a wait.
            await asyncio.sleep(0)
        return await self._receive()

    async def _read_frames(self, tasks: asyncio.TaskGroup) -> int:
        while (code := await self._read_frame(tasks)) is None:
            # Between frames nothing of the last one is kept here, which may have been large.
            pass
        return code

    async def _read_frame(self, tasks: asyncio.TaskGroup) -> int | None:
        """Begin what the next frame asks for; returns the code of the goodbye, if it is one."""
        message = await self._next_frame()
        if message["type"] == "websocket.disconnect":
            return int(message.get("code") or 1005)
        if self._is_closed:
            return None
        self._heard_at = self._loop.time()
        text, content = message.get("text"), message.get("bytes")
        is_binary = text is None
        try:
            frame = _binary_frame(content or b"") if text is None else _text_frame(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            await self._reply(_malformed(content if text is None else text, error), is_binary)
            return None
        if self._operations >= self._limits.operations_max:
            detail = f"{self._operations} operations of this connection are under way"
            await self.refuse(TOO_MANY_OPERATIONS, Problem(429, "Too many operations", detail))
            return None
        if isinstance(frame, Credit):
            await self._grant(frame, is_binary)
            return None
        memory = MemoryShare(self._backend.memory)
        size = len(content or b"") if text is None else len(text)
        try:
            # What makes room is always taken.
            (memory.take if isinstance(frame, _From | TextEnqueue | BinaryEnqueue) else memory.add)(size)
        except MemoryUsedUp as error:
            await self._reply({"op": "error", **_error(no_memory(error)), "id": frame.id}, is_binary)
            return None
        self._operations += 1
        tasks.create_task(self._serve(frame, is_binary)).add_done_callback(memory.end)
        return None

    async def _serve(self, frame: Any, is_binary: bool) -> None:
        try:
            reply = await self._perform(frame, is_binary)
        except Problem as problem:
            reply = {"op": "error", **_error(problem)}
        except ClusterError as error:
            reply = {"op": "error", **_error(failed(error.code, error.detail))}
        except Exception as error:
            log.error("websocket.operation_failed", operation=type(frame).__name__, reason=repr(error))
            reply = {"op": "error", **_error(Problem(500, "Internal error", "the gateway failed"))}
        try:
            await self._reply({**reply, "id": frame.id}, is_binary)
        finally:
            # Replies that nobody reads count as well: they are kept until somebody does.
            self._operations -= 1

    async def _perform(  # noqa: C901, PLR0912 - one case each
        self, frame: Any, is_binary: bool
    ) -> dict[str, Any]:
        if isinstance(frame, _From | TextEnqueue | BinaryEnqueue):
            self._backend.check_quota()
        match frame:
            case TextEnqueue() | BinaryEnqueue():
                return await self._enqueue(frame)
            case Dequeue():
                wait_ms = frame.wait_ms
                on_their_way: list[str] = []
                try:
                    messages = await self._next(frame, frame.max, wait_ms, is_binary, on_their_way)
                except asyncio.CancelledError:
                    await self.held.give_back(frame.group or "", on_their_way)
                    raise
                return {"op": "messages", "messages": messages}
            case Subscribe():
                return self._subscribe(frame, is_binary)
            case Unsubscribe():
                found = self._subscriptions.pop(frame.subscription, None)
                if found is None or found.task is None:
                    raise _no_subscription(frame.subscription)
                found.task.cancel()
                await asyncio.wait((found.task,))
                return {"op": "unsubscribed", "subscription": frame.subscription}
            case Ack():
                if frame.group is None:
                    return await self._commit(frame.receipts)
                return await self._settle(frame.group, ACKNOWLEDGE, frame.receipts)
            case Nack():
                action = REJECT if frame.reject else RELEASE
                delay_ms = -1 if frame.delay_ms is None else frame.delay_ms
                return await self._settle(
                    frame.group, action, frame.receipts, delay_ms=delay_ms, reason=frame.reason
                )
            case Release():
                return await self._settle(frame.group, RETURN, frame.receipts)
            case Renew():
                lease_ms = -1 if frame.lease_ms is None else frame.lease_ms
                return await self._settle(frame.group, RENEW, frame.receipts, lease_ms=lease_ms)
            case _:
                assert isinstance(frame, Ping), frame
                return {"op": "pong"}

    async def _enqueue(self, frame: TextEnqueue | BinaryEnqueue) -> dict[str, Any]:
        given: tuple[Any, ...] = frame.messages if frame.message is None else (frame.message, *frame.messages)
        if not given:
            raise invalid("messages", "there is nothing to publish")
        read = _text_record if isinstance(frame, TextEnqueue) else _binary_record
        records: list[tuple[OutgoingRecord, int | None]] = []
        singles = len(given) - len(frame.messages)
        for index, message in enumerate(given):
            if index % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
                await asyncio.sleep(0)
            try:
                records.append(read(message))
            except Problem as problem:
                where = "message." if index < singles else f"messages[{index - singles}]."
                raise problem.within(where) from None
        now = [record for record, due in records if due is None]
        stored: list[Any] = []
        if now:
            outcomes = await self._backend.publisher.publish(frame.topic, now, acks=ACKS[frame.acks])
            stored = [_stored(outcome) for outcome in outcomes]
        if len(now) < len(records):
            later = [_delayed(frame.topic, record, due) for record, due in records if due is not None]
            delayed = iter(await self._backend.queues.delay(later))
            next_stored = iter(stored)
            stored = [next(next_stored) if due is None else _kept(next(delayed)) for _, due in records]
        return {"op": "enqueued", "results": stored}

    async def _next(
        self, asked: _From, count: int, wait_ms: int, is_binary: bool, on_their_way: list[str]
    ) -> list[Any]:
        """The next messages, leased or read; the receipts of leases are added to the list, come what may."""
        if asked.group is not None:
            answer = await receive(
                self._backend.queues,
                on_their_way,
                asked.group,
                self._consumer,
                asked.sources,
                records_max=count,
                wait_ms=wait_ms,
                lease_ms=-1 if asked.lease_ms is None else asked.lease_ms,
            )
            # The last ones of the list: a receipt is made whenever it is asked for, so not again.
            receipts = on_their_way[len(on_their_way) - len(answer.records) :]
            self.held.add(asked.group, receipts)
            view = _binary_message if is_binary else _text_message
            return [
                view(each.topic, each.partition, each, receipt, each.attempt)
                for each, receipt in zip(answer.records, receipts, strict=True)
            ]
        places: list[Place] = []
        for name in asked.sources:
            found = await self._backend.cluster.topic(name)
            places += [(name, each.partition) for each in found.partitions]
        records = await read_assigned(self._backend, self._reader, places, count, wait_ms)
        view = _binary_message if is_binary else _text_message
        return [
            view(topic, partition, record, f"{topic}/{partition}/{record.offset}")
            for (topic, partition), record in records
        ]

    # Subscriptions.

    def _subscribe(self, asked: Subscribe, is_binary: bool) -> dict[str, Any]:
        if len(self._subscriptions) >= self._limits.subscriptions_max:
            detail = f"a connection has {self._limits.subscriptions_max} subscriptions at most"
            raise Problem(429, "Too many subscriptions", detail)
        _ = asked.sources
        self._last_number += 1
        subscription = _Subscription(self._last_number, asked, is_binary)
        self._subscriptions[subscription.number] = subscription
        assert self._tasks is not None
        subscription.task = self._tasks.create_task(self._deliver(subscription))
        return {"op": "subscribed", "subscription": subscription.number}

    async def _grant(self, frame: Credit, is_binary: bool) -> None:
        found = self._subscriptions.get(frame.subscription)
        if found is None:
            problem = _no_subscription(frame.subscription)
            await self._reply({"op": "error", **_error(problem), "id": frame.id}, is_binary)
        else:
            found.grant(frame.credits)

    async def _deliver(self, subscription: _Subscription) -> None:
        try:
            await self._deliver_until_over(subscription)
        finally:
            if subscription.on_their_way and subscription.asked.group is not None:
                await self.held.give_back(subscription.asked.group, subscription.on_their_way)

    async def _deliver_until_over(self, subscription: _Subscription) -> None:
        last_error = ""
        width = 1
        while not self._is_closed:
            await subscription.has_credits.wait()
            try:
                messages, width = await self._next_at_once(subscription, width)
            except ClusterError as error:
                problem = failed(error.code, error.detail)
                if not error.is_retriable:
                    self._subscriptions.pop(subscription.number, None)
                    await self._fail(subscription, problem, is_over=True)
                    return
                if last_error != error.detail:
                    await self._fail(subscription, problem, is_over=False)
                last_error = error.detail
                await asyncio.sleep(error.seconds if isinstance(error, QuotaExceeded) else RETRY_SECONDS)
                continue
            last_error = ""
            if messages:
                subscription.spend(len(messages))
                delivery = {"op": "messages", "subscription": subscription.number, "messages": messages}
                await self._reply(delivery, subscription.is_binary)
                if not self._is_closed:
                    subscription.on_their_way.clear()

    async def _next_at_once(self, subscription: _Subscription, width: int) -> tuple[list[Any], int]:
        """The next messages, and how many requests for more to send at once.

        A lease waits for the disk: while queues have all that is asked for, several are acquired at once.
        """
        asked, is_binary, left = subscription.asked, subscription.is_binary, subscription.credits
        counts = [min(DELIVERED_MAX, left - at) for at in range(0, left, DELIVERED_MAX)][:width]
        if len(counts) == 1:
            messages = await self._next(asked, counts[0], STEP_WAIT_MS, is_binary, subscription.on_their_way)
        else:
            # An error of one must not cancel the others: what they lease would not be delivered.
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._try_next(subscription, count)) for count in counts]
            outcomes = [task.result() for task in tasks]
            messages = [message for each in outcomes if isinstance(each, list) for message in each]
            errors = [each for each in outcomes if isinstance(each, ClusterError)]
            if errors and not messages:
                raise errors[0]
        is_busy = asked.group is not None and len(messages) == sum(counts)
        return messages, min(width * 2, WIDTH_MAX) if is_busy else 1

    async def _try_next(self, subscription: _Subscription, count: int) -> list[Any] | ClusterError:
        asked, is_binary = subscription.asked, subscription.is_binary
        try:
            return await self._next(asked, count, 0, is_binary, subscription.on_their_way)
        except ClusterError as error:
            return error

    async def _fail(self, subscription: _Subscription, problem: Problem, *, is_over: bool) -> None:
        reply = {"op": "error", **_error(problem), "subscription": subscription.number, "is_over": is_over}
        await self._reply(reply, subscription.is_binary)

    # What became of messages.

    async def _settle(
        self, group: str, action: int, receipts: Sequence[str], **details: Any
    ) -> dict[str, Any]:
        outcomes = await self._backend.queues.settle(group, action, receipts, **details)
        if action != RENEW:
            self.held.settled(receipts)
        return _settled([None if each is None else failed(each.code, each.detail) for each in outcomes])

    async def _commit(self, ids: Sequence[str]) -> dict[str, Any]:
        places = [_place(each) for each in ids]
        offsets: dict[Place, int] = {}
        for place in places:
            if not isinstance(place, Problem):
                where, offset = place
                # Late acknowledgements take no position back.
                offsets[where] = max(offset + 1, offsets.get(where, 0), self._committed.get(where, 0))
        stored: Mapping[Place, ClusterError | None] = {}
        if offsets:
            stored = await self._backend.membership.commit(self._reader.group, offsets)
        for where, offset in offsets.items():
            if stored.get(where) is None:
                self._committed[where] = max(offset, self._committed.get(where, 0))
        return _settled(
            [each if isinstance(each, Problem) else _unstored(each[0], stored) for each in places]
        )

    # Frames to the client.

    def _check_idle(self) -> None:
        idle = self._loop.time() - self._heard_at
        if self._subscriptions or self._operations or idle < self._limits.idle_seconds:
            left = self._limits.idle_seconds if self._subscriptions else self._limits.idle_seconds - idle
            self._idle = self._loop.call_later(max(0.01, left), self._check_idle)
        else:
            detail = f"nothing was asked for {self._limits.idle_seconds:g} s"
            self.end(IDLE, Problem(408, "Idle", detail))

    async def _reply(self, reply: dict[str, Any], is_binary: bool) -> None:
        if not self._is_closed:
            await self._write(reply, is_binary)

    async def _write(self, reply: dict[str, Any], is_binary: bool) -> None:
        if is_binary:
            encoded = _msgpack.encode(reply)
            frame = {"type": "websocket.send", "bytes": encoded}
        else:
            encoded = _json.encode(reply)
            frame = {"type": "websocket.send", "text": encoded.decode()}
        self._backend.memory.add(len(encoded))
        try:
            async with asyncio.timeout(self._backend.limits.response_timeout_ms / 1_000):
                await self._send(frame)
        except (OSError, RuntimeError):
            # Lost, or too slow to read: the disconnect follows.
            self._is_closed = True
        finally:
            self._backend.memory.give_back(len(encoded))


class _Ended(Exception):
    """Ends the tasks of a connection."""


def _error(problem: Problem) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(problem.body)
    return found


def _malformed(frame: Any, error: Exception) -> dict[str, Any]:
    try:
        known = _TEXT_ID.decode(frame) if isinstance(frame, str) else _BINARY_ID.decode(frame)
        frame_id = known.id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        frame_id = None
    if isinstance(error, msgspec.DecodeError):
        problem = invalid_json(error, syntax="JSON" if isinstance(frame, str) else "MessagePack")
    else:
        problem = invalid(None, "this frame cannot be read")
    return {"op": "error", **_error(problem), "id": frame_id}


def _no_subscription(number: int) -> Problem:
    return Problem(404, "Not found", f"there is no subscription {number}", field="subscription")


def _settled(problems: Sequence[Problem | None]) -> dict[str, Any]:
    errors = [{"index": index, **_error(each)} for index, each in enumerate(problems) if each is not None]
    return {"op": "settled", "settled": len(problems) - len(errors), "errors": errors}


def _stored(outcome: RecordPosition | ClusterError) -> StoredMessage | dict[str, Any]:
    if isinstance(outcome, ClusterError):
        return {"error": _error(failed(outcome.code, outcome.detail, refused_field(outcome)))}
    partition, offset, timestamp_ms = outcome
    return StoredMessage(partition, None if offset < 0 else offset, timestamp_ms)


def _kept(outcome: str | ClusterError) -> Any:
    """What became of a message for later."""
    return _stored(outcome) if isinstance(outcome, ClusterError) else {"delay_id": outcome}


def _text_record(message: MessageBody) -> tuple[OutgoingRecord, int | None]:
    return outgoing(message), deliver_at_ms(message)


def _binary_record(message: BinaryMessage) -> tuple[OutgoingRecord, int | None]:
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if message.headers:
        headers = tuple(message.headers.items())
    if message.priority is not None:
        headers += ((PRIORITY, b"%d" % message.priority),)
    if message.ttl_ms is not None:
        headers += ((TTL_MS, b"%d" % message.ttl_ms),)
    return OutgoingRecord(message.key, message.value, headers, message.partition), deliver_at_ms(message)


def _delayed(topic: str, record: OutgoingRecord, due: int) -> DelayedPublish:
    return DelayedPublish(topic, record.key, record.value, due, tuple(record.headers), record.partition)


def _binary_message(
    topic: str, partition: int, record: Any, receipt: str, attempt: int | UnsetType = UNSET
) -> BinaryDelivery:
    return BinaryDelivery(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=dict(record.headers),
        receipt=receipt,
        attempt=attempt,
    )


def _text_message(
    topic: str, partition: int, record: Any, receipt: str, attempt: int | UnsetType = UNSET
) -> dict[str, Any]:
    found = message_fields(topic, partition, record)
    found["receipt"] = receipt
    if attempt is not UNSET:
        found["attempt"] = attempt
    return found


def _unstored(where: Place, stored: Mapping[Place, ClusterError | None]) -> Problem | None:
    """Why a position was not stored."""
    error = stored.get(where)
    if error is None:
        return None
    return failed(error.code, f"the position in {where[0]}/{where[1]} was not stored", "receipts")


def _place(message_id: str) -> tuple[Place, int] | Problem:
    topic, _, rest = message_id.partition("/")
    partition, _, offset = rest.partition("/")
    is_number = rest.isascii() and partition.isdigit() and offset.isdigit()
    if not topic or not is_number or len(partition) > 9 or len(offset) > 18:
        return invalid("receipts", "without a group, a receipt is a message's id: topic/partition/offset")
    return (topic, int(partition)), int(offset)
