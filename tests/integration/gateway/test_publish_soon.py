"""A publish that comes whole is served without ASGI, and nobody can tell."""

import asyncio
import itertools
import json
import socket
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.options import GatewayOptions, RestOptions
from penstock.server.http.app import rest_app
from penstock.server.http.rest_server import RestServer, SoonOrigin
from penstock.testing import Broker

names = (f"soon-{number}" for number in itertools.count())
Response = tuple[int, dict[str, Any], dict[str, str]]


class Counted:
    """Counts what is served soon."""

    def __init__(self, serve_soon: Callable[..., bool]) -> None:
        self._serve_soon = serve_soon
        self.served = self.left = 0
        self.has_served = asyncio.Event()

    def serve_soon(
        self, url: bytes, content: bytes, respond: Callable[[int, bytes], None], origin: SoonOrigin
    ) -> bool:
        is_served = self._serve_soon(url, content, respond, origin)
        self.served += is_served
        self.has_served.set()
        self.left += not is_served
        return is_served


class Client:
    """One connection to a gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: str) -> None:
        self._reader = reader
        self.writer = writer
        self.topic = topic

    async def another(self) -> "Client":
        streams = await asyncio.open_connection(*self.writer.get_extra_info("peername"))
        return Client(*streams, self.topic)

    def request(self, body: bytes, headers: str = "", path: str | None = None) -> bytes:
        path = path or f"/v1/topics/{self.topic}/publish"
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        return head.encode() + body

    def send(self, body: bytes, **more: str) -> None:
        self.writer.write(self.request(body, **more))

    async def response(self) -> Response:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.rstrip().split("\r\n")
        headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(status.split()[1]), json.loads(body), headers

    async def ask(self, body: object, **more: str) -> Response:
        self.send(body if isinstance(body, bytes) else json.dumps(body).encode(), **more)
        return await self.response()

    async def is_closed(self) -> bool:
        return await self._reader.read() == b""


def serve(
    embedded: Broker,
    work: Callable[[Client, Counted, RestServer], Coroutine[Any, Any, Any]],
    **limits: Any,
) -> Any:
    """What `work` returns; the topic exists, and the gateway knows it."""

    async def run() -> Any:
        host, port = embedded.nodes[0].address.rsplit(":", 1)
        options = GatewayOptions(bootstrap=(host, int(port)), rest=RestOptions(**limits))
        backend = GatewayBackend(options)
        app = rest_app(backend)
        counted = Counted(app.serve_soon)
        server = RestServer(app, options.rest, counted)
        listening = socket.create_server(("127.0.0.1", 0))
        await server.open(listening)
        try:
            async with asyncio.timeout(30):
                topic = next(names)
                await backend.cluster.topic(topic, create=True)
                streams = await asyncio.open_connection(*listening.getsockname())
                with closing(streams[1]):
                    return await work(Client(*streams, topic), counted, server)
        finally:
            await server.close()
            await backend.close()

    return asyncio.run(run())


def test_a_publish_that_comes_whole_is_served_soon(embedded: Broker) -> None:
    async def work(client: Client, counted: Counted, _: RestServer) -> list[Response]:
        answers = [
            await client.ask({"key": "k", "value": number, "headers": {"a": "b"}}) for number in range(3)
        ]
        assert (counted.served, counted.left) == (3, 0)
        return answers

    answers = serve(embedded, work)

    assert [(status, body["offset"]) for status, body, _ in answers] == [(200, 0), (200, 1), (200, 2)]
    headers = answers[0][2]
    assert headers["content-type"] == "application/json"
    assert {"date", "server", "content-length"} <= set(headers)


def test_a_body_in_pieces_is_served_by_the_application(embedded: Broker) -> None:
    async def work(client: Client, counted: Counted, _: RestServer) -> Response:
        other = await client.another()
        request = client.request(b'{"value": "in two pieces"}')
        client.writer.write(request[:-5])
        # Once this has its response, the server has read the first piece.
        assert (await other.ask({"value": 1}))[0] == 200
        client.writer.write(request[-5:])
        answer = await client.response()
        assert (counted.served, counted.left) == (1, 0)
        other.writer.close()
        return answer

    status, body, _ = serve(embedded, work)

    assert (status, body["offset"]) == (200, 1)


def test_requests_behind_each_other_are_answered_in_order(embedded: Broker) -> None:
    async def work(client: Client, counted: Counted, _: RestServer) -> list[int]:
        for number in range(5):
            client.send(json.dumps({"value": number, "partition": 0}).encode())
        answers = [await client.response() for _ in range(5)]
        assert [status for status, _, _ in answers] == [200] * 5
        assert counted.served
        return [body["offset"] for _, body, _ in answers]

    assert serve(embedded, work) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b'{"value": 1', 400, None),
        (b'{"key": "\xff", "value": 1}', 400, None),
        (b'{"value": "\xff"}', 400, "value"),
        ({"value": 1, "partition": 99}, 404, "partition"),
        ({"key": "k"}, 400, "value"),
        ({"value": 1, "more": 2}, 400, "more"),
        ({"value": 1, "acks": "some"}, 400, "acks"),
        ({"value": "x" * 2_000}, 413, None),
    ],
)
def test_what_is_wrong_is_said_by_the_application(
    embedded: Broker, body: object, status: int, field: str | None
) -> None:
    async def work(client: Client, counted: Counted, _: RestServer) -> tuple[Response, Response]:
        wrong = await client.ask(body)
        assert (counted.served, counted.left) == (0, 1)
        return wrong, await client.ask({"value": 1})

    (found, problem, headers), after = serve(embedded, work, body_bytes_max=1_000)

    assert (found, problem.get("field")) == (status, field)
    assert headers["content-type"] == "application/problem+json"
    assert (after[0], after[1]["offset"]) == (200, 0)


def test_what_the_leader_refuses_is_a_problem(embedded: Broker) -> None:
    async def work(client: Client, counted: Counted, _: RestServer) -> Response:
        client.topic += "-small"
        topic = {"name": client.topic, "partitions": 1, "config": {"max.message.bytes": "200"}}
        assert (await client.ask(topic, path="/v1/topics"))[0] == 201
        # The gateway has to look for the topic once.
        assert (await client.ask({"value": 1}))[0] == 200
        before = counted.served
        answer = await client.ask({"value": "x" * 300})
        assert counted.served == before + 1
        assert (await client.ask({"value": 1}))[0] == 200
        return answer

    status, problem, headers = serve(embedded, work)

    assert (status, problem["code"]) == (413, "MESSAGE_TOO_LARGE")
    assert headers["content-type"] == "application/problem+json"


def test_a_client_may_close_the_connection_behind_a_publish(embedded: Broker) -> None:
    async def work(client: Client, _: Counted, __: RestServer) -> Response:
        answer = await client.ask({"value": 1}, headers="Connection: close\r\n")
        assert await client.is_closed()
        return answer

    status, _, headers = serve(embedded, work)

    assert (status, headers["connection"]) == (200, "close")


def test_a_delay_is_kept_by_the_application(embedded: Broker) -> None:
    async def work(client: Client, counted: Counted, _: RestServer) -> Response:
        answer = await client.ask({"value": 1, "delay_ms": 60_000})
        assert counted.left == 1
        return answer

    status, body, _ = serve(embedded, work)

    assert status == 202
    assert body["delay_id"]


def test_requests_that_are_served_soon_count_as_under_way(embedded: Broker) -> None:
    async def work(client: Client, counted: Counted, _: RestServer) -> list[int]:
        others = [await client.another() for _ in range(20)]
        for each in others:
            each.send(b'{"value": 1}')
        statuses = [(await each.response())[0] for each in others]
        assert (await client.ask({"value": 1}))[0] == 200
        for each in others:
            each.writer.close()
        return statuses

    statuses = serve(embedded, work, requests_max=1)

    assert set(statuses) == {200, 503}


def test_a_server_that_closes_responds_to_what_it_has_taken(embedded: Broker) -> None:
    async def work(client: Client, counted: Counted, server: RestServer) -> Response:
        assert (await client.ask({"value": 1}))[0] == 200
        counted.has_served.clear()
        client.send(b'{"value": 2}')
        await counted.has_served.wait()
        await server.close()
        answer = await client.response()
        assert await client.is_closed()
        return answer

    status, body, headers = serve(embedded, work)

    assert (status, body["offset"], headers["connection"]) == (200, 1, "close")
