"""Requests and responses of a gateway take so much memory and no more."""

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.options import GatewayOptions, RestOptions
from penstock.server.http.app import rest_app
from penstock.server.http.rest_server import RestServer
from penstock.server.http.websocket import WebSocketEndpoint
from tests.integration.gateway.test_http_limits import UPGRADE, Address, large_frames, large_page
from tests.integration.gateway.test_websocket import opened

OPTIONS = RestOptions(
    body_bytes_max=200_000, in_flight_bytes_max=300_000, body_timeout_ms=1_000, response_timeout_ms=20_000
)
PUBLISH = b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: a\r\nContent-Length: 190000\r\n\r\n"
LINES = (
    b"POST /v1/topics/t/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
    b"Content-Length: 190000\r\n\r\n"
)
PART = b" " * 100_000


def with_server(
    work: Callable[[Address, GatewayBackend], Coroutine[Any, Any, None]], app: Any = None
) -> None:
    async def run() -> None:
        backend = GatewayBackend(GatewayOptions(rest=OPTIONS))
        served = rest_app(backend)
        server = RestServer(app or served, OPTIONS, None if app else served, backend.memory)
        listening = socket.create_server(("127.0.0.1", 0))
        await server.open(listening)
        try:
            async with asyncio.timeout(30):
                await work(listening.getsockname(), backend)
        finally:
            await server.close()
            await backend.close()

    asyncio.run(run())


async def used(backend: GatewayBackend, is_enough: Callable[[int], bool]) -> None:
    while not is_enough(backend.memory.used_bytes):  # noqa: ASYNC110 - nobody says so
        await asyncio.sleep(0.005)


async def response(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return head, json.loads(await reader.readexactly(length))


@pytest.mark.parametrize("head", [PUBLISH, LINES], ids=["one body", "lines"])
def test_a_body_that_has_no_room_beside_the_others_is_refused(head: bytes) -> None:
    async def work(address: Address, backend: GatewayBackend) -> None:
        others = [await asyncio.open_connection(*address) for _ in range(2)]
        for _, writer in others:
            writer.write(head + PART)
        await used(backend, lambda size: size == 200_000)

        reader, writer = await asyncio.open_connection(*address)
        writer.write(head + PART + b" " * 10_000)
        refused, problem = await response(reader)

        assert " 503 " in refused
        assert "\r\nretry-after: 1\r\n" in refused
        assert "application/problem+json" in refused
        assert problem["title"] == "Too many bytes at once"
        assert "of 300000 bytes (rest.in_flight_bytes_max)" in problem["detail"]
        for _, other in [*others, (reader, writer)]:
            other.close()
        await used(backend, lambda size: size == 0)

    with_server(work)


def test_a_publish_that_comes_whole_is_counted() -> None:
    async def work(address: Address, backend: GatewayBackend) -> None:
        reader, writer = await asyncio.open_connection(*address)
        backend.memory.add(299_980)
        body = b'{"value":"there is no room"}'
        writer.write(b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\n" + body)
        refused, problem = await response(reader)

        assert (" 503 " in refused, problem["title"]) == (True, "Too many bytes at once")
        writer.close()
        await used(backend, lambda size: size == 299_980)

    with_server(work)


def test_while_the_budget_is_used_up_nothing_begins() -> None:
    async def work(address: Address, backend: GatewayBackend) -> None:
        backend.memory.add(300_000)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /v1/topics HTTP/1.1\r\nHost: a\r\n\r\n")
        refused, problem = await response(reader)
        backend.memory.give_back(300_000)
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
        served, _ = await response(reader)

        assert (" 503 " in refused, problem["title"]) == (True, "Too many bytes at once")
        assert " 200 " in served
        writer.close()

    with_server(work)


@pytest.mark.parametrize(
    ("app", "request_bytes"),
    [
        pytest.param(large_page, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", id="HTTP"),
        pytest.param(large_frames, UPGRADE, id="WebSocket"),
    ],
)
def test_a_response_counts_until_it_is_read(app: Any, request_bytes: bytes) -> None:
    async def work(address: Address, backend: GatewayBackend) -> None:
        _, writer = await asyncio.open_connection(*address, limit=1_000)
        writer.write(request_bytes)
        await used(backend, lambda size: size > 64 << 10)

        writer.close()
        await used(backend, lambda size: size == 0)

    with_server(work, app)


def test_a_frame_that_has_no_room_gets_an_error() -> None:
    async def work(_: Address, backend: GatewayBackend) -> None:
        wire = await opened(WebSocketEndpoint(backend))
        await wire.hear()
        backend.memory.add(299_980)
        wire.say(op="enqueue", id=7, topic="t", message={"value": 1})
        refused = await wire.hear()
        wire.say(op="ping", id=8)
        assert (await wire.hear())["op"] == "pong"
        backend.memory.give_back(299_980)

        assert (refused["op"], refused["id"], refused["status"]) == ("error", 7, 503)
        assert "rest.in_flight_bytes_max" in refused["detail"]
        await wire.hang_up()
        await used(backend, lambda size: size == 0)

    with_server(work)


def test_no_websocket_is_opened_while_the_budget_is_used_up() -> None:
    async def work(_: Address, backend: GatewayBackend) -> None:
        backend.memory.add(300_000)
        wire = await opened(WebSocketEndpoint(backend))

        assert (await wire.hear())["status"] == 503
        assert (await wire.hear())["code"] == 1013

    with_server(work)


def test_a_frame_that_comes_in_parts_counts_from_the_first_one_on() -> None:
    async def work(address: Address, backend: GatewayBackend) -> None:
        # A text frame of 190,000 bytes, of which one half comes.
        part = b"\x81\xff" + (190_000).to_bytes(8, "big") + bytes(4) + b" " * 100_000
        first, second = [await asyncio.open_connection(*address) for _ in range(2)]
        for reader, writer in (first, second):
            writer.write(UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(part)
        await used(backend, lambda size: size >= 200_000)
        backend.memory.add(100_000)
        first[1].write(b" " * 1_000)

        assert (1013).to_bytes(2, "big") in await first[0].read()
        first[1].close()
        await used(backend, lambda size: 200_000 <= size < 202_000)
        second[1].close()
        await used(backend, lambda size: size == 100_000)

    with_server(work)
