"""A node on a thread, and beside it the gRPC server as a gateway has it; every test has its topic."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import uvloop

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.options import GatewayOptions, RestOptions
from penstock.server.grpc.options import GrpcOptions
from penstock.server.grpc.server import GrpcServer
from penstock.testing import Broker, broker
from penstock.v1.penstock_pb2_grpc import PenstockStub

# Small enough to be reached by a test.
LIMITS = GrpcOptions(
    message_bytes_max=1 << 20, batch_max=2_000, stream_bytes_max=64 << 10, stream_requests_max=4
)


class ServerThread:
    """The gRPC server on an event loop of its own."""

    def __init__(self, node: Broker, limits: GrpcOptions = LIMITS, rest: RestOptions | None = None) -> None:
        host, _, port = node.bootstrap_servers.rpartition(":")
        page_host, _, page_port = node.http_url.removeprefix("http://").rpartition(":")
        self._options = GatewayOptions(
            bootstrap=(host, int(port)),
            pages=(page_host, int(page_port)),
            grpc=("127.0.0.1", 0),
            rest=rest or RestOptions(),
        )
        self._limits = limits
        self._is_open = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="grpc server")
        self.port = 0

    def open(self) -> None:
        self._thread.start()
        assert self._is_open.wait(30), "the server did not open"

    def close(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        backend = GatewayBackend(self._options)
        server = GrpcServer(backend, self._limits)
        self.port = await server.open()
        self._is_open.set()
        await self._stop.wait()
        await backend.close()
        await server.close()


@pytest.fixture(scope="session")
def node() -> Iterator[Broker]:
    with broker(settings={"topics.partitions": 2, "topics.auto_create": "false"}) as running:
        yield running


@pytest.fixture(scope="session")
def server(node: Broker) -> Iterator[ServerThread]:
    thread = ServerThread(node)
    thread.open()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def channel(server: ServerThread) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as opened:
        yield opened


@pytest.fixture(scope="session")
def penstock(channel: Any) -> Any:
    return PenstockStub(channel)  # type: ignore[no-untyped-call]


@pytest.fixture
def topic(node: Broker) -> str:
    return node.create_topic(partitions=2)
