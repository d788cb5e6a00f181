"""What a client of the HTTP server may not do: one clear error each, and nothing else suffers."""

import asyncio
import json
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import httpx
import msgspec
import pytest

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.options import GatewayOptions, RestOptions
from penstock.server.http.app import rest_app
from penstock.server.http.rest_server import FRAMES_BYTES_MAX, PIPELINED_MAX, RestServer
from tests.support.recorded_events import recorded_events

LIMITS = RestOptions(
    body_bytes_max=10_000,
    head_bytes_max=2_000,
    connections_max=2,
    requests_max=1,
    body_timeout_ms=100,
    response_timeout_ms=100,
)
PUBLISH = b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: a\r\n"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
Address = tuple[str, int]


async def large_page(_scope: Any, _receive: Any, send: Any) -> None:
    """More than sockets hold of a response that nobody reads."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(64):
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})


async def large_frames(_scope: Any, receive: Any, send: Any) -> None:
    """The same for a WebSocket; a ping is no message, so that nothing is received."""
    await receive()
    await send({"type": "websocket.accept"})
    with suppress(OSError):
        for _ in range(64):
            await send({"type": "websocket.send", "bytes": bytes(1 << 20)})


async def read_and_respond(_scope: Any, receive: Any, send: Any) -> None:
    """How many bytes the body has."""
    size, is_more = 0, True
    while is_more:
        message = await receive()
        size += len(message["body"])
        is_more = message["more_body"]
    content = json.dumps({"size": size}).encode()
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def accepted_or_read(scope: Any, receive: Any, send: Any) -> None:
    """A WebSocket stays open; other requests are responded to."""
    if scope["type"] != "websocket":
        await read_and_respond(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def serve(
    client: Callable[[Address], Coroutine[Any, Any, Any]], app: Any = None, limits: RestOptions = LIMITS
) -> Any:
    """What `client` returns, which is called with the address of a server."""

    async def run() -> Any:
        backend = GatewayBackend(GatewayOptions(rest=limits))
        rest = rest_app(backend)
        server = RestServer(app or rest, limits, None if app else rest)
        listening = socket.create_server(("127.0.0.1", 0))
        address: Address = listening.getsockname()
        await server.open(listening)
        try:
            async with asyncio.timeout(20):
                return await client(address)
        finally:
            await server.close()
            await backend.close()

    return asyncio.run(run())


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split(" ")[1]), json.loads(await reader.readexactly(length))


async def sent(address: Address, request: bytes, client: str = "127.0.0.1") -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_connection(*address, local_addr=(client, 0))
    try:
        writer.write(request)
        return await answer(reader)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status", "detail"),
    [
        (b"nonsense\r\n\r\n", 400, "Invalid HTTP request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 3_000, 431, "a head may have 2000 bytes"),
        (b"GET / HTTP/1.1\r\n" + b"X: xxxxxxxx\r\n" * 400, 431, "a head may have 2000 bytes"),
        (b"GET / HTTP/1.1\r\nHo", 408, "the head of the request did not arrive in time"),
        (PUBLISH + b"Content-Length: 50\r\n\r\n{", 408, "the body was not complete after 0.1 s"),
        (PUBLISH + b"Content-Length: 20000\r\n\r\n" + b" " * 20_000, 413, "a body may have 10000 bytes"),
        (PUBLISH + b"Content-Length: 1\r\n\r\n{", 400, "this is not JSON"),
    ],
)
def test_a_request_that_goes_too_far_gets_one_clear_error(
    request_bytes: bytes, status: int, detail: str
) -> None:
    code, problem = serve(lambda address: sent(address, request_bytes))

    assert (code, problem["status"]) == (status, status)
    assert detail in problem["detail"]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (PUBLISH + b"Content-Length: 50\r\n\r\n{", 408),
        (PUBLISH + b"Content-Length: 20000\r\n\r\n" + b" " * 15_000, 413),
    ],
)
def test_a_connection_ends_when_its_body_is_not_wanted_any_more(request_bytes: bytes, status: int) -> None:
    async def client(address: Address) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request_bytes)
        code, _ = await answer(reader)
        writer.write(b"{")
        rest = await reader.read()
        writer.close()
        return code, rest

    assert serve(client) == (status, b"")


def test_a_body_is_no_part_of_the_head_behind_it() -> None:
    async def client(address: Address) -> list[Any]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(PUBLISH + b"Content-Length: 5000\r\n\r\n" + b" " * 5_000 + b"GET / HT")
        first = await answer(reader)
        writer.write(b"TP/1.1\r\nHost: a\r\n\r\n")
        second = await answer(reader)
        writer.close()
        return [first, second]

    assert serve(client, read_and_respond) == [(200, {"size": 5_000}), (200, {"size": 0})]


@pytest.mark.parametrize(
    ("next_request", "status"),
    [(b"GET / HTTP/1.1\r\n" + b"X: xxxxxxxx\r\n" * 400, 431), (b"nonsense\r\n\r\n", 400)],
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_a_request_is_refused_behind_the_response_to_the_one_before(
    next_request: bytes, status: int, is_complete: bool
) -> None:
    async def client(address: Address) -> tuple[Any, int, bytes]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(PUBLISH + b"Content-Length: 2\r\n\r\n{}" + next_request + b"\r\n" * is_complete)
        first = await answer(reader)
        code, _ = await answer(reader)
        rest = await reader.read()
        writer.close()
        return first, code, rest

    assert serve(client, read_and_respond) == ((200, {"size": 2}), status, b"")


def test_more_connections_than_allowed_are_turned_away() -> None:
    async def client(address: Address) -> tuple[int, dict[str, Any]]:
        opened = [await asyncio.open_connection(*address) for _ in range(LIMITS.connections_max)]
        try:
            return await sent(address, b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n")
        finally:
            for _, writer in opened:
                writer.close()

    code, problem = serve(client)

    assert (code, problem["title"]) == (503, "Too many connections")


def test_an_address_has_no_more_connections_than_it_may_have_whatever_they_became() -> None:
    limits = msgspec.structs.replace(
        LIMITS, connections_max=9, address_connections_max=2, body_timeout_ms=20_000
    )
    request = b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n"

    async def client(address: Address) -> tuple[list[int], int]:
        _, plain = await asyncio.open_connection(*address)
        reader, socket_ = await asyncio.open_connection(*address)
        socket_.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        other = await sent(address, request, "127.0.0.2")
        codes = [(await sent(address, request))[0], other[0]]
        plain.close()
        socket_.close()
        # Both places are there again: for one that stays, and another one.
        code = 503
        while code == 503:
            plain.close()
            reader, plain = await asyncio.open_connection(*address)
            plain.write(request)
            code = (await answer(reader))[0]
        while (code := (await sent(address, request))[0]) == 503:
            pass
        plain.close()
        return codes, code

    with recorded_events() as events:
        assert serve(client, accepted_or_read, limits) == ([503, 200], 200)

    assert [event["host"] for event in events.named("rest.too_many_connections")] == ["127.0.0.1"]


def test_a_connection_has_no_more_requests_waiting_than_it_may_have() -> None:
    async def client(address: Address) -> tuple[list[int], str, bytes]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 5_000)
        codes: list[int] = []
        problem: dict[str, Any] = {}
        while not codes or codes[-1] == 200:
            code, problem = await answer(reader)
            codes.append(code)
        rest = await reader.read()
        writer.close()
        return codes, problem["detail"], rest

    codes, detail, rest = serve(client, read_and_respond)

    assert codes == [200] * (PIPELINED_MAX + 1) + [503]
    assert (detail, rest) == (f"{PIPELINED_MAX} wait in this connection already", b"")


@pytest.mark.parametrize("is_fragmented", [False, True])
def test_frames_that_come_together_are_read_in_several_turns(is_fragmented: bool) -> None:
    count = 20_000
    frames = b"".join(b"\x81\x81\0\0\0\0%d" % (number % 10) for number in range(count))
    if is_fragmented:
        frames = b"\x01\x81\0\0\0\0x" + b"\x00\x80\0\0\0\0" * count + b"\x80\x80\0\0\0\0" + frames
    read: Counter[int] = Counter()
    texts: list[str] = []
    all_read = asyncio.Event()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        turn = 0

        async def turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            counting = tasks.create_task(turns())
            while len(texts) < count + is_fragmented:
                texts.append((await receive())["text"])
                read[turn] += 1
            counting.cancel()
        all_read.set()
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def client(address: Address) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frames)
        await all_read.wait()
        # The connection goes on as before.
        writer.write(b"\x89\x80\0\0\0\0")
        assert (await reader.readexactly(2))[0] == 0x8A
        writer.close()

    serve(client, app)

    assert texts == ["x"] * is_fragmented + [str(number % 10) for number in range(count)]
    assert max(read.values()) <= 2 * FRAMES_BYTES_MAX / 7


def test_a_goodbye_behind_many_frames_is_heard_of_a_connection_that_the_server_ends() -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await send({"type": "websocket.close", "code": 1000})

    async def client(address: Address) -> bytes:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x81\x81\0\0\0\0x" * 5_000 + b"\x88\x82\0\0\0\0\x03\xe8")
        # Without the goodbye, the end would come after ten seconds.
        async with asyncio.timeout(8):
            rest = await reader.read()
        writer.close()
        return rest

    assert serve(client, app) == b"\x88\x02\x03\xe8"


def test_messages_that_unpack_to_much_wait_for_those_before_them() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = (packer.compress(b"a" * 9_000) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    frame = bytes([0xC1, 0x80 | len(packed)]) + bytes(4) + packed
    count = 20 * FRAMES_BYTES_MAX // len(frame)
    queued: list[int] = []
    all_read = asyncio.Event()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(count):
            assert len((await receive())["text"]) == 9_000
            queued.append(receive.__self__.queue.qsize())
            # Long enough for everything to come.
            for _ in range(3):
                await asyncio.sleep(0)
        all_read.set()

    async def client(address: Address) -> None:
        reader, writer = await asyncio.open_connection(*address)
        deflate = b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        writer.write(UPGRADE.removesuffix(b"\r\n") + deflate)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame * count)
        await all_read.wait()
        writer.close()

    serve(client, app)

    assert len(queued) == count
    assert max(queued) <= FRAMES_BYTES_MAX // len(frame) + 1


def test_more_requests_at_once_than_allowed_are_turned_away() -> None:
    async def client(address: Address) -> tuple[int, dict[str, Any]]:
        _, writer = await asyncio.open_connection(*address)
        # Under way until its body times out.
        writer.write(PUBLISH + b"Content-Length: 50\r\n\r\n{")
        try:
            while True:
                code, problem = await sent(address, b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n")
                if code == 503:
                    return code, problem
                # The first was not read yet, or is over.
                writer.write(PUBLISH + b"Content-Length: 50\r\n\r\n{")
        finally:
            writer.close()

    code, problem = serve(client)

    assert (code, problem["title"]) == (503, "Too many requests at once")


def test_an_address_leaves_places_of_requests_to_others() -> None:
    limits = msgspec.structs.replace(
        LIMITS, connections_max=40, address_connections_max=20, requests_max=4, body_timeout_ms=20_000
    )
    incomplete = PUBLISH + b"Content-Length: 50\r\n\r\n{"
    complete = PUBLISH + b"Content-Length: 1\r\n\r\n{"

    async def client(address: Address) -> tuple[str, int, int]:
        waiting = [await asyncio.open_connection(*address) for _ in range(3)]
        for _, writer in waiting:
            writer.write(incomplete)
        # Two of them wait for the rest of their bodies, and the third has an answer.
        reads = [asyncio.ensure_future(answer(reader)) for reader, _ in waiting]  # noqa: TID251 - a test
        (refused,), others = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        status, problem = refused.result()
        soon, of_other = await sent(address, complete), await sent(address, complete, "127.0.0.2")
        for each in others:
            each.cancel()
        for _, writer in waiting:
            writer.close()
        while (await sent(address, complete))[0] == 503:
            pass
        assert status == soon[0]
        return problem["detail"], status, of_other[0]

    detail, status, of_other = serve(client, limits=limits)

    assert (detail, status, of_other) == ("2 requests of your address are under way", 503, 400)


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/api/v1/admin/health"])
def test_whoever_watches_a_busy_node_is_not_turned_away(path: str) -> None:
    async def asked() -> str:
        backend = GatewayBackend(GatewayOptions(rest=RestOptions(requests_max=0)))
        transport = httpx.ASGITransport(rest_app(backend))
        async with httpx.AsyncClient(transport=transport, base_url="http://rest") as client:
            response = await client.get(path)
        await backend.close()
        return str(response.json()["detail"])

    # There is no node here, which nobody finds out who is turned away.
    assert "the node does not respond" in asyncio.run(asked())


@pytest.mark.parametrize(
    ("app", "request_bytes", "probe"),
    [
        pytest.param(large_page, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\r\n", id="HTTP"),
        pytest.param(large_frames, UPGRADE, b"\x89\x80\0\0\0\0", id="WebSocket"),
    ],
)
def test_a_client_that_does_not_read_loses_its_connection(
    app: Any, request_bytes: bytes, probe: bytes
) -> None:
    async def client(address: Address) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(address) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(request_bytes)
            connection.setblocking(False)
            while True:
                # A probe is reset once the server has given the connection up.
                await asyncio.sleep(0.05)
                try:
                    await loop.sock_sendall(connection, probe)
                except ConnectionError:
                    return

    serve(client, app)
