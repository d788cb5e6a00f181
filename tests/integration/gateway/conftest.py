"""The REST application on a real client of a real broker, without sockets of its own."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import httpx
import pytest

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.options import GatewayOptions, RestOptions
from penstock.server.http.app import rest_app
from penstock.testing import Broker, broker

T = TypeVar("T")


class RestClient:
    """Sends requests to an application, one loop for all of them."""

    def __init__(self, started: Broker, options: RestOptions) -> None:
        host, port = started.nodes[0].address.rsplit(":", 1)
        pages_host, pages_port = started.http_url.removeprefix("http://").rsplit(":", 1)
        self._options = GatewayOptions(
            bootstrap=(host, int(port)), pages=(pages_host, int(pages_port)), rest=options
        )
        self._runner = asyncio.Runner()
        self.backend = self.run(self._open)
        self.app = rest_app(self.backend)

    async def _open(self) -> GatewayBackend:
        return GatewayBackend(self._options)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._runner.run(work())

    def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """A response; `body` is JSON unless it is bytes."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://rest") as client:
                return await client.request(method, path, content=content, timeout=30, **more)

        return self.run(ask)

    def close(self) -> None:
        self.run(self.backend.close)
        self._runner.close()


@pytest.fixture(scope="package")
def embedded() -> Iterator[Broker]:
    with broker(in_process=False) as started:
        yield started


@pytest.fixture
def rest(embedded: Broker) -> Iterator[RestClient]:
    client = RestClient(embedded, RestOptions(default_topic="inbound", body_bytes_max=100_000))
    yield client
    client.close()
