"""WebSocket, over a real socket of a gateway: operations, credits, positions, limits."""

import asyncio
import gc
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from itertools import pairwise
from socket import SHUT_RDWR, create_server
from typing import Any

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame
from websockets.sync.client import ClientConnection, connect

from penstock.client.cluster import OutgoingRecord
from penstock.client.websocket import WebSocketClient, WebSocketError
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.options import GatewayOptions, RestOptions
from penstock.server.http.address_places import NETWORK
from penstock.server.http.app import rest_app
from penstock.server.http.rest_server import RestServer
from penstock.server.http.routes.publish import MESSAGES_PER_TURN
from penstock.server.http.websocket import FRAMES_PER_TURN, WebSocketEndpoint, WebSocketLimits
from penstock.testing import Broker
from tests.integration.gateway.conftest import RestClient

names = (f"sockets-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def gateway(embedded: Broker) -> Iterator[str]:
    """The address of a gateway that serves in a thread."""
    host, port = embedded.nodes[0].address.rsplit(":", 1)
    options = GatewayOptions(bootstrap=(host, int(port)))
    listening = create_server(("127.0.0.1", 0))
    started, loops = threading.Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def serve() -> None:
        backend, stop = GatewayBackend(options), asyncio.Event()
        app = rest_app(backend)
        server = RestServer(app, options.rest, app)
        await server.open(listening)
        loops.append((asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await server.close()
        await backend.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(20)
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    loop, stop = loops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()


@pytest.fixture
def url(gateway: str) -> str:
    return f"ws://{gateway}"


@pytest.fixture
def topic(gateway: str) -> str:
    name = next(names)
    answer = httpx.post(f"http://{gateway}/v1/topics", json={"name": name, "partitions": 1})
    assert answer.status_code == 201, answer.text
    return name


class Socket:
    """A connection that speaks JSON."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.welcome = self.read()

    def read(self) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.connection.recv(timeout=20))
        return reply

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.connection.send(json.dumps({"op": op, "id": 1, **fields}))
        reply = self.read()
        assert reply["id"] == 1, reply
        return reply


@pytest.fixture
def socket(url: str) -> Iterator[Socket]:
    with connect(f"{url}/v1/ws") as connection:
        yield Socket(connection)


def values(reply: dict[str, Any]) -> list[Any]:
    return [each["value"] for each in reply["messages"]]


def large_frames() -> int:
    """How many frames of a megabyte are kept, by clients and servers of this process."""
    return sum(type(each) is Frame and len(each.data) > 1 << 20 for each in gc.get_objects())


def test_a_large_frame_is_not_kept_until_the_next_one_comes(socket: Socket) -> None:
    refused = socket.ask("enqueue", topic="t", messages=[{"key": "x" * (2 << 20)}])

    assert refused["op"] == "error"
    assert large_frames() == 0


def test_messages_are_enqueued_dequeued_and_acknowledged(socket: Socket, topic: str) -> None:
    one = socket.ask("enqueue", topic=topic, message={"value": {"a": 1}})
    assert [each["offset"] for each in one["results"]] == [0]
    more = socket.ask("enqueue", topic=topic, messages=[{"value": 2}, {"value_base64": "/w=="}])
    assert [each["offset"] for each in more["results"]] == [1, 2]

    reply = socket.ask("dequeue", topic=topic, group="g", max=10, wait_ms=5_000)

    assert [each.get("value", each.get("value_base64")) for each in reply["messages"]] == [
        {"a": 1},
        2,
        "/w==",
    ]
    receipts = [each["receipt"] for each in reply["messages"]]
    assert socket.ask("ack", group="g", receipts=receipts[:1])["settled"] == 1
    refused = socket.ask("ack", group="g", receipts=[receipts[0], "nonsense"])
    assert (refused["settled"], [each["code"] for each in refused["errors"]]) == (
        0, ["INVALID_RECORD_STATE", "INVALID_REQUEST"],
    )  # fmt: skip
    assert socket.ask("renew", group="g", receipts=receipts[1:2])["settled"] == 1
    assert socket.ask("nack", group="g", receipts=receipts[1:2], delay_ms=0)["settled"] == 1
    (again,) = socket.ask("dequeue", topic=topic, group="g", wait_ms=5_000)["messages"]
    assert (again["value"], again["attempt"]) == (2, 2)
    assert socket.ask("ping")["op"] == "pong"


def test_no_more_is_sent_than_there_are_credits_for(socket: Socket, topic: str) -> None:
    socket.ask("enqueue", topic=topic, messages=[{"value": number} for number in range(10)])
    number = socket.ask("subscribe", topic=topic, group="g", credits=3)["subscription"]

    assert values(socket.read()) == [0, 1, 2]
    # The reply to what was asked next comes first: nothing else was under way.
    assert socket.ask("ping")["op"] == "pong"
    described = socket.ask("dequeue", topic=topic, group="g", max=2)
    assert values(described) == [3, 4], "what was not sent is not leased either"
    socket.connection.send(json.dumps({"op": "credit", "subscription": number, "credits": 100}))
    assert values(socket.read()) == [5, 6, 7, 8, 9]
    assert socket.ask("unsubscribe", subscription=number)["op"] == "unsubscribed"
    late = socket.ask("credit", subscription=number, credits=1)
    assert (late["status"], late["field"]) == (404, "subscription")


def test_a_consumer_gets_an_id_and_resumes_behind_what_it_acknowledged(url: str, topic: str) -> None:
    with connect(f"{url}/v1/ws") as connection:
        socket = Socket(connection)
        consumer = socket.welcome["consumer"]
        assert socket.welcome["is_new"]
        socket.ask("enqueue", topic=topic, messages=[{"value": number} for number in range(4)])
        first = socket.ask("dequeue", topic=topic, max=3, wait_ms=5_000)
        assert values(first) == [0, 1, 2]
        assert socket.ask("ack", receipts=[first["messages"][1]["receipt"]])["settled"] == 1

    with connect(f"{url}/v1/ws?consumer={consumer}") as connection:
        socket = Socket(connection)
        assert (socket.welcome["consumer"], socket.welcome["is_new"]) == (consumer, False)
        assert values(socket.ask("dequeue", topic=topic, max=10, wait_ms=5_000)) == [2, 3]


@pytest.mark.parametrize("frame", [b"\x88\x82\0\0\0\0\x03\xe8", b"\x88\x80\0\0\0\0"], ids=["1000", "no code"])
def test_whoever_says_goodbye_gives_back_what_it_has(
    url: str, socket: Socket, topic: str, frame: bytes
) -> None:
    socket.ask("enqueue", topic=topic, message={"value": "job"})
    with connect(f"{url}/v1/ws") as connection:
        assert values(Socket(connection).ask("dequeue", topic=topic, group="g", wait_ms=5_000)) == ["job"]
        connection.socket.sendall(frame)

        (back,) = socket.ask("dequeue", topic=topic, group="g", wait_ms=20_000)["messages"]
    assert (back["value"], back["attempt"]) == ("job", 1)


def test_whoever_is_lost_keeps_what_it_has_for_a_while(url: str, socket: Socket, topic: str) -> None:
    socket.ask("enqueue", topic=topic, message={"value": "job"})
    with connect(f"{url}/v1/ws?consumer=lost-{topic}") as connection:
        lost = Socket(connection)
        (job,) = lost.ask("dequeue", topic=topic, group="g", wait_ms=5_000)["messages"]
        connection.socket.shutdown(SHUT_RDWR)

    assert socket.ask("dequeue", topic=topic, group="g", wait_ms=300)["messages"] == []
    with connect(f"{url}/v1/ws?consumer=lost-{topic}") as connection:
        assert Socket(connection).ask("ack", group="g", receipts=[job["receipt"]])["settled"] == 1


def test_the_same_consumer_again_takes_the_connection_over(url: str, socket: Socket) -> None:
    with connect(f"{url}/v1/ws?consumer={socket.welcome['consumer']}") as connection:
        Socket(connection)
        error = socket.read()
        assert (error["op"], error["title"]) == ("error", "Taken over")
        with pytest.raises(ConnectionClosed, match="4409"):
            socket.connection.recv(timeout=20)


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ("not json", None),
        ("[]", None),
        ('{"id": 7}', "op"),
        ('{"op": "no-such", "id": 7}', "op"),
        ('{"op": "enqueue", "id": 7}', "topic"),
        ('{"op": "enqueue", "id": 7, "topic": "t", "surprise": 1}', "surprise"),
        ('{"op": "enqueue", "id": 7, "topic": "t"}', "messages"),
        ('{"op": "enqueue", "topic": "t", "message": {"value_base64": "%"}}', "message.value_base64"),
        ('{"op": "enqueue", "topic": "t", "message": {"value": 1}, "messages": [{}]}', "messages[0].value"),
        ('{"op": "dequeue", "id": 7, "topic": "t", "max": 0}', "max"),
        ('{"op": "dequeue", "id": 7}', "topic"),
        ('{"op": "subscribe", "id": 7, "topic": "t", "credits": -1}', "credits"),
        ('{"op": "ack", "id": 7, "receipts": []}', "receipts"),
        (b"\xc1", None),
        (b"", None),
        ("[" * 5_000, None),
    ],
)  # fmt: skip
def test_a_malformed_frame_gets_one_clear_error_and_the_connection_stays(
    socket: Socket, frame: str | bytes, field: str | None
) -> None:
    socket.connection.send(frame)

    reply = socket.connection.recv(timeout=20)
    error = json.loads(reply) if isinstance(reply, str) else msgspec.msgpack.decode(reply)
    assert (error["op"], error["status"], error.get("field")) == ("error", 400, field), error
    assert socket.ask("ping")["op"] == "pong"


def test_bytes_that_are_no_messagepack_are_not_called_json(socket: Socket) -> None:
    socket.connection.send(b"\xc1")

    answer = socket.connection.recv(timeout=20)

    assert isinstance(answer, bytes)
    error = msgspec.msgpack.decode(answer)
    assert error["detail"].startswith("this is not MessagePack:"), error


def test_what_is_wrong_with_a_message_of_many_is_named(socket: Socket, topic: str) -> None:
    nowhere = {"value": 1, "partition": 9}
    late = {"value": 1, "delay_ms": 10**14}

    results = socket.ask("enqueue", topic=topic, messages=[{"value": 0}, nowhere])["results"]
    unnamed = socket.ask("enqueue", topic="a/b", message={"value": 1})["results"]
    refused = socket.ask("enqueue", topic=topic, messages=[{"value": 1}, late])

    assert ("error" in results[0], results[1]["error"]["field"]) == (False, "partition")
    assert unnamed[0]["error"]["field"] == "topic"
    assert (refused["status"], refused["field"]) == (400, "messages[1].delay_ms")


def test_a_position_that_is_none_takes_the_others_neither_along_nor_back(
    url: str, socket: Socket, topic: str
) -> None:
    for number in range(3):
        socket.ask("enqueue", topic=topic, message={"value": number})
    assert values(socket.ask("dequeue", topic=topic, max=3)) == [0, 1, 2]

    settled = socket.ask("ack", receipts=[f"{topic}/0/1", f"{topic}/7/0", "nowhere-at-all/0/0"])
    late = socket.ask("ack", receipts=[f"{topic}/0/0"])

    assert (settled["settled"], [each["index"] for each in settled["errors"]]) == (1, [1, 2])
    assert late["settled"] == 1
    with connect(f"{url}/v1/ws?consumer={socket.welcome['consumer']}") as connection:
        assert values(Socket(connection).ask("dequeue", topic=topic, max=3)) == [2]


def test_a_path_that_is_none_is_not_found(url: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}/v1/nowhere")

    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["title"] == "Not found"


def test_a_frame_that_is_too_large_closes_the_connection(socket: Socket) -> None:
    socket.connection.send("x" * (RestOptions().body_bytes_max + 1))

    with pytest.raises(ConnectionClosed, match="1009"):
        socket.connection.recv(timeout=20)


def test_the_python_client_produces_and_consumes_bytes(url: str, topic: str) -> None:
    async def work() -> list[bytes | None]:
        async with await WebSocketClient.connect(url) as client:
            await client.enqueue(topic, [b"\xff\x00", {"value": b"two", "key": b"k", "headers": {"h": b"v"}}])
            found = []
            async for message in client.subscribe(topic, group="g", credits=2):
                found.append(message)
                await client.ack([message])
                if len(found) == 2:
                    break
            assert (found[1].key, found[1].headers, found[1].attempt) == (b"k", {"h": b"v"}, 1)
            with pytest.raises(WebSocketError, match="no topic"):
                await client.dequeue("no-such-topic", group="g")
            assert await client.dequeue(topic, group="g") == []
            with pytest.raises(WebSocketError, match="no WebSocket server"):
                await WebSocketClient.connect("ws://127.0.0.1:1")
            return [message.value for message in found]

    assert asyncio.run(work()) == [b"\xff\x00", b"two"]


def test_what_an_iterator_has_not_returned_goes_to_others_when_it_is_closed(url: str, topic: str) -> None:
    async def work() -> list[tuple[bytes | None, int]]:
        async with await WebSocketClient.connect(url) as client, await WebSocketClient.connect(url) as other:
            await client.enqueue(topic, [b"0", b"1", b"2", b"3"])
            async with aclosing(client.subscribe(topic, group="g", credits=100)) as messages:
                first = await anext(messages)
            left = await other.dequeue(topic, group="g", count=10, wait_ms=20_000)
            await client.ack([first])
            return [(each.value, each.attempt) for each in (first, *left)]

    assert asyncio.run(work()) == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1)]


# Limits, with an endpoint of our own that has small ones.


class Wire:
    """Both ends of a connection to an endpoint, without a socket."""

    def __init__(self, endpoint: WebSocketEndpoint, query: bytes = b"", network: str = "") -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.is_read = asyncio.Event()
        self.is_read.set()
        scope = {"type": "websocket", "query_string": query, "state": {NETWORK: network}}
        self.task = asyncio.ensure_future(endpoint(scope, self.inbox.get, self._send))  # noqa: TID251 - a test

    async def _send(self, message: Any) -> None:
        await self.is_read.wait()
        self.outbox.put_nowait(message)

    def say(self, **frame: Any) -> None:
        self.inbox.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(20):
            message = await self.outbox.get()
        found: dict[str, Any] = json.loads(message["text"]) if "text" in message else message
        return found

    async def hang_up(self) -> None:
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await self.task


def with_limits(
    rest: RestClient,
    limits: WebSocketLimits,
    work: Callable[[WebSocketEndpoint, GatewayBackend], Awaitable[None]],
) -> None:
    async def run() -> None:
        await work(WebSocketEndpoint(rest.backend, limits), rest.backend)

    rest.run(run)


async def opened(endpoint: WebSocketEndpoint, query: bytes = b"", network: str = "") -> Wire:
    wire = Wire(endpoint, query, network)
    assert (await wire.hear())["type"] == "websocket.accept"
    return wire


def test_one_connection_too_many_is_told_so(rest: RestClient) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        first = await opened(endpoint)
        assert (await first.hear())["op"] == "welcome"
        second = await opened(endpoint)
        assert (await second.hear())["title"] == "Too many connections"
        assert (await second.hear())["code"] == 4503
        await first.hang_up()

    with_limits(rest, WebSocketLimits(connections_max=1), work)


def test_an_address_leaves_connections_to_others(rest: RestClient) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        wires = [await opened(endpoint, network=network) for network in ("a", "a", "b")]
        welcome = [await wire.hear() for wire in wires]
        assert [each["op"] for each in welcome] == ["welcome", "error", "welcome"]
        assert welcome[1]["detail"] == "your address has 1 WebSocket connections already"
        assert (await wires[1].hear())["code"] == 4503
        await wires[0].hang_up()
        again = await opened(endpoint, network="a")
        assert (await again.hear())["op"] == "welcome"
        for wire in (wires[2], again):
            await wire.hang_up()

    with_limits(rest, WebSocketLimits(connections_max=3), work)


def test_frames_that_have_come_are_looked_at_in_several_turns(rest: RestClient) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        wire = await opened(endpoint)
        await wire.hear()
        for _number in range(5 * FRAMES_PER_TURN):
            wire.say(op="nonsense")
        replies = [0]
        while replies[-1] < 5 * FRAMES_PER_TURN:
            await asyncio.sleep(0)
            replies.append(wire.outbox.qsize())
        assert max(later - before for before, later in pairwise(replies)) <= FRAMES_PER_TURN
        await wire.hang_up()

    with_limits(rest, WebSocketLimits(), work)


def test_messages_of_a_frame_are_made_records_in_several_turns(rest: RestClient, topic: str) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        wire = await opened(endpoint)
        await wire.hear()
        wire.say(op="enqueue", topic=topic, messages=[{"value": 1}] * 9_999 + [{}])
        turns = 0
        while wire.outbox.empty():
            turns += 1
            await asyncio.sleep(0)
        assert (await wire.hear())["field"] == "messages[9999].value"
        assert turns >= 10_000 // MESSAGES_PER_TURN
        await wire.hang_up()

    with_limits(rest, WebSocketLimits(), work)


def test_too_many_operations_at_once_end_the_connection(rest: RestClient, topic: str) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        wire = await opened(endpoint)
        await wire.hear()
        for number in range(3):
            wire.say(op="dequeue", id=number, topic=topic, group="g", wait_ms=60_000)
        assert (await wire.hear())["status"] == 429
        assert (await wire.hear())["code"] == 4429
        await wire.hang_up()

    with_limits(rest, WebSocketLimits(operations_max=2), work)


def test_operations_whose_replies_nobody_reads_are_under_way(rest: RestClient) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        wire = await opened(endpoint)
        await wire.hear()
        wire.is_read.clear()
        for number in range(3):
            wire.say(op="ping", id=number)
            for _turn in range(20):
                await asyncio.sleep(0)
        wire.is_read.set()
        heard = [await wire.hear() for _ in range(4)]
        assert [each.get("op") for each in heard[:3]] == ["pong", "pong", "error"]
        assert heard[3]["code"] == 4429
        await wire.hang_up()

    with_limits(rest, WebSocketLimits(operations_max=2), work)


def test_a_connection_that_nobody_reads_can_be_taken_over(rest: RestClient) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        before = await opened(endpoint, b"consumer=a")
        await before.hear()
        before.is_read.clear()
        after = await opened(endpoint, b"consumer=a")
        assert (await after.hear())["op"] == "welcome"
        before.is_read.set()
        assert (await before.hear())["title"] == "Taken over"
        assert (await before.hear())["code"] == 4409
        await before.hang_up()
        await after.hang_up()

    with_limits(rest, WebSocketLimits(), work)


def test_a_connection_that_asks_for_nothing_is_closed(rest: RestClient) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        wire = await opened(endpoint)
        await wire.hear()
        assert (await wire.hear())["title"] == "Idle"
        assert (await wire.hear())["code"] == 4408
        await wire.hang_up()

    with_limits(rest, WebSocketLimits(idle_seconds=0.05), work)


def test_a_consumer_needs_a_name(rest: RestClient) -> None:
    async def work(endpoint: WebSocketEndpoint, _: GatewayBackend) -> None:
        wire = await opened(endpoint, b"consumer=")
        assert (await wire.hear())["field"] == "consumer"
        assert (await wire.hear())["code"] == 4400

    with_limits(rest, WebSocketLimits(), work)


async def leased_by(endpoint: WebSocketEndpoint, topic: str, consumer: str) -> Wire:
    """A connection of a consumer that has got a message."""
    wire = await opened(endpoint, f"consumer={consumer}".encode())
    await wire.hear()
    wire.say(op="enqueue", id=1, topic=topic, message={"value": "job"})
    await wire.hear()
    wire.say(op="dequeue", id=2, topic=topic, group="g", wait_ms=10_000, lease_ms=600_000)
    (message,) = (await wire.hear())["messages"]
    assert message["attempt"] == 1
    return wire


def test_what_a_lost_consumer_had_goes_to_others_after_the_session_timeout(
    rest: RestClient, topic: str
) -> None:
    async def work(endpoint: WebSocketEndpoint, backend: GatewayBackend) -> None:
        wire = await leased_by(endpoint, topic, "a")
        await wire.hang_up()

        (again,) = (await backend.queues.receive("g", "b", [topic], wait_ms=20_000)).records
        assert (again.value, again.attempt) == (b'"job"', 2)

    with_limits(rest, WebSocketLimits(session_seconds=0.1), work)


def test_a_lost_consumer_that_comes_back_has_what_it_had(rest: RestClient, topic: str) -> None:
    async def work(endpoint: WebSocketEndpoint, backend: GatewayBackend) -> None:
        lost = await leased_by(endpoint, topic, "a")
        lost.inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})
        for _turn in range(20):
            await asyncio.sleep(0)
        back = await opened(endpoint, b"consumer=a")
        await back.hear()
        await lost.task
        assert not (await backend.queues.receive("g", "b", [topic])).records
        back.inbox.put_nowait({"type": "websocket.disconnect", "code": 1005})

        (again,) = (await backend.queues.receive("g", "b", [topic], wait_ms=20_000)).records
        assert again.attempt == 1
        await back.task

    with_limits(rest, WebSocketLimits(session_seconds=600), work)


def test_what_is_on_its_way_when_a_subscription_ends_goes_back(rest: RestClient, topic: str) -> None:
    async def work(endpoint: WebSocketEndpoint, backend: GatewayBackend) -> None:
        wire = await opened(endpoint)
        await wire.hear()
        wire.say(op="subscribe", id=1, topic=topic, group="g", credits=10, lease_ms=600_000)
        number = (await wire.hear())["subscription"]
        wire.is_read.clear()
        await backend.publisher.publish(topic, [OutgoingRecord(None, b"job")])
        while not (await backend.queues.describe(["g"], [topic]))[0].leased:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        wire.say(op="unsubscribe", id=2, subscription=number)

        (again,) = (await backend.queues.receive("g", "b", [topic], wait_ms=20_000)).records
        assert again.attempt == 1
        wire.is_read.set()
        assert (await wire.hear())["op"] == "unsubscribed"
        await wire.hang_up()

    with_limits(rest, WebSocketLimits(), work)
