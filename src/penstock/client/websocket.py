"""A producer and a consumer over WebSocket: `/v1/ws` of any node.

    async with await WebSocketClient.connect("ws://127.0.0.1:8080") as client:
        await client.enqueue("jobs", [b"one", b"two"])
        async for message in client.subscribe("jobs", group="workers"):
            await client.ack([message])

Frames are binary (MessagePack), so that keys and values are bytes. With a group, messages are leased from
queues; without one they are read from the log, and a client that connects again with the same `consumer` goes
on behind the last message that it acknowledged.

Left out: reconnecting. A lost connection raises, and whoever cares connects again, with the same `consumer`.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from penstock.client.endpoint import ClientError

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_text = msgspec.json.Decoder().decode
FRAME_BYTES_MAX = 64 << 20
RECEIPTS_MAX = 1_000


class WebSocketError(ClientError):
    """The server refused an operation, or ended the connection."""

    def __init__(self, detail: str, code: str | None = None, field: str | None = None) -> None:
        self.code = code
        self.field = field
        super().__init__(detail if field is None else f"{field}: {detail}")


class WebSocketMessage(NamedTuple):
    """A message that was delivered; `attempt` is 0 where it was read from the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]
    receipt: str
    attempt: int = 0
    group: str | None = None


class WebSocketClient:
    """One connection; used inside one event loop."""

    def __init__(self, connection: ClientConnection, consumer: str, is_new: bool) -> None:
        self._connection = connection
        self.consumer = consumer
        self.is_new = is_new
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._subscriptions: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._end: Exception | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def connect(cls, url: str, *, consumer: str | None = None, seconds: float = 10) -> Self:
        """Connect to a node: `ws://host:port`; `consumer` is who this was before."""
        query = "" if consumer is None else f"?consumer={quote(consumer, safe='')}"
        try:
            connection = await connect(
                f"{url.rstrip('/')}/v1/ws{query}",
                open_timeout=seconds,
                max_size=FRAME_BYTES_MAX,
                compression=None,
            )
        except (OSError, WebSocketException) as error:
            raise WebSocketError(f"no WebSocket server at {url}: {error}") from None
        try:
            async with asyncio.timeout(seconds):
                welcome = _decode_text(await connection.recv())
        except (OSError, WebSocketException) as error:
            await connection.close()
            raise WebSocketError(f"{url} did not say welcome: {error}") from None
        if welcome["op"] != "welcome":
            await connection.close()
            raise _error(welcome)
        return cls(connection, welcome["consumer"], welcome["is_new"])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Say goodbye: what is leased and not acknowledged goes to others at once."""
        await self._connection.close()
        with suppress(asyncio.CancelledError):
            await self._reading

    async def enqueue(
        self, topic: str, values: Sequence[bytes | Mapping[str, Any]], *, acks: str = "all"
    ) -> list[dict[str, Any]]:
        """Publish values, or messages with `key`, `headers`, `delay_ms`, …; where each was stored."""
        messages = [{"value": value} if isinstance(value, bytes) else dict(value) for value in values]
        reply = await self.ask("enqueue", topic=topic, messages=messages, acks=acks)
        results: list[dict[str, Any]] = reply["results"]
        for result in results:
            if "error" in result:
                raise _error(result["error"])
        return results

    async def dequeue(
        self, topic: str, *, group: str | None = None, count: int = 1, wait_ms: int = 0
    ) -> list[WebSocketMessage]:
        """The next messages, none if there are none in time."""
        more = {} if group is None else {"group": group}
        reply = await self.ask("dequeue", topic=topic, max=count, wait_ms=wait_ms, **more)
        return [_message(each, group) for each in reply["messages"]]

    async def subscribe(
        self,
        topic: str,
        *,
        group: str | None = None,
        credits: int = 1_000,  # noqa: A002 - the protocol's word
    ) -> AsyncGenerator[WebSocketMessage, None]:
        """Messages as they come; no more than `credits` are on their way.

        Close the iterator (`contextlib.aclosing`) when you leave its loop: what it has not returned goes to
        others then. What it has is yours until you settle it, or close the connection.
        """
        more = {} if group is None else {"group": group}
        number = (await self.ask("subscribe", topic=topic, credits=credits, **more))["subscription"]
        deliveries = self._deliveries_of(number)
        arrived: deque[dict[str, Any]] = deque()
        taken = 0
        try:
            while True:
                delivery = await deliveries.get()
                if delivery["op"] == "error":
                    if delivery.get("is_over", True):
                        raise _error(delivery)
                    continue
                arrived.extend(delivery["messages"])
                while arrived:
                    yield _message(arrived.popleft(), group)
                    taken += 1
                    if taken * 2 >= credits:
                        await self._send({"op": "credit", "subscription": number, "credits": taken})
                        taken = 0
        finally:
            with suppress(WebSocketError):
                await self._unsubscribe(number, group, arrived)

    async def _unsubscribe(self, number: int, group: str | None, arrived: deque[dict[str, Any]]) -> None:
        """End a subscription, and give back what nobody has taken of it."""
        try:
            await self.ask("unsubscribe", subscription=number)
        finally:
            deliveries = self._subscriptions.pop(number)
        while not deliveries.empty():
            arrived.extend(deliveries.get_nowait().get("messages", ()))
        receipts = [each["receipt"] for each in arrived]
        if group is not None:
            for start in range(0, len(receipts), RECEIPTS_MAX):
                await self.ask("release", group=group, receipts=receipts[start : start + RECEIPTS_MAX])

    async def ack(self, messages: Sequence[WebSocketMessage]) -> None:
        """The messages are done; one that counts no more raises."""
        await self._settle("ack", messages)

    async def nack(self, messages: Sequence[WebSocketMessage], **fields: Any) -> None:
        """The messages failed; `delay_ms`, `reason`, `reject`."""
        await self._settle("nack", messages, **fields)

    async def release(self, messages: Sequence[WebSocketMessage]) -> None:
        """Nobody has worked on the messages: others get them at once, and this delivery does not count."""
        await self._settle("release", messages)

    async def renew(self, messages: Sequence[WebSocketMessage], **fields: Any) -> None:
        """The messages take longer; `lease_ms`."""
        await self._settle("renew", messages, **fields)

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Any operation of the protocol, and its reply."""
        if self._end is not None:
            raise self._end
        number = next(self._ids)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"op": op, "id": number, **fields})
            reply: dict[str, Any] = await waiting
        finally:
            del self._waiting[number]
            if waiting.done() and not waiting.cancelled():
                # The connection may have ended while the question was sent: then nobody else looks at it.
                waiting.exception()
        if reply["op"] == "error":
            raise _error(reply)
        return reply

    async def _settle(self, op: str, messages: Sequence[WebSocketMessage], **fields: Any) -> None:
        by_group: dict[str | None, list[str]] = {}
        for each in messages:
            by_group.setdefault(each.group, []).append(each.receipt)
        for group, receipts in by_group.items():
            more = {} if group is None else {"group": group}
            reply = await self.ask(op, receipts=receipts, **more, **fields)
            if reply["errors"]:
                raise _error(reply["errors"][0])

    async def _send(self, frame: dict[str, Any]) -> None:
        try:
            await self._connection.send(_encode(frame))
        except ConnectionClosed as error:
            raise self._end or WebSocketError(f"the connection is closed: {error}") from None

    def _deliveries_of(self, number: int) -> asyncio.Queue[dict[str, Any]]:
        # The credits bound it.
        return self._subscriptions.setdefault(number, asyncio.Queue())

    def _take(self, reply: dict[str, Any]) -> bool:
        """False for an error that nobody waits for."""
        waiting = self._waiting.get(reply.get("id") or 0)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(reply)
        elif "subscription" in reply:
            self._deliveries_of(reply["subscription"]).put_nowait(reply)
        else:
            return bool(reply["op"] != "error")
        return True

    async def _read(self) -> None:
        end: Exception = WebSocketError("the connection is closed")
        try:
            async for frame in self._connection:
                reply = _decode(frame) if isinstance(frame, bytes) else _decode_text(frame)
                if not self._take(reply):
                    # It is about the connection, which ends next.
                    end = _error(reply)
        except ConnectionClosed as error:
            end = WebSocketError(f"the connection was lost: {error}")
        finally:
            self._end = end
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(end)
            for deliveries in self._subscriptions.values():
                deliveries.put_nowait({"op": "error", "detail": str(end), "is_over": True})


def _message(fields: dict[str, Any], group: str | None) -> WebSocketMessage:
    return WebSocketMessage(**fields, group=group)


def _error(problem: Mapping[str, Any]) -> WebSocketError:
    detail = problem.get("detail") or "the server refused it"
    return WebSocketError(str(detail), problem.get("code"), problem.get("field"))
