"""The places of a small HTTP server: silent clients cannot keep others out."""

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from penstock.runtime import Address
from penstock.server.http.server import HttpLimits, HttpRequest, HttpResponse, HttpServer
from tests.integration.runtime.conftest import Bench

GET = b"GET /ready HTTP/1.1\r\n\r\n"
PUT = b"PUT /slow/ HTTP/1.1\r\nContent-Length: 1\r\n\r\n!"
HALF_A_PUT = PUT[:-1]
# More than the buffers of two sockets take.
LARGE = bytes(32 << 20)
SECONDS = 30


class Pages:
    """A server with four places, two of them for one address, and its clients."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.waiting: list[Callable[[HttpResponse], None]] = []
        pages = {
            "/ready": lambda: HttpResponse(200, b"ready"),
            "/large": lambda: HttpResponse(200, LARGE),
        }
        limits = HttpLimits(connections_max=4, address_connections_max=2)
        self.server = HttpServer(bench.node(1), pages, limits, {"/slow/": self._slow})
        self.address = self.server.open(bench.loop, Address("127.0.0.1", 0))
        self._clients: list[socket.socket] = []

    def _slow(self, _: HttpRequest, respond: Callable[[HttpResponse], None]) -> None:
        self.waiting.append(respond)

    def connect(self, host: str, sent: bytes = b"") -> socket.socket:
        """A client of this address, once the server has taken it and what it sent."""
        client = socket.create_connection(self.address, SECONDS, source_address=(host, 0))
        client.setblocking(False)
        self._clients.append(client)
        client.sendall(sent)
        for _ in range(100):
            self._bench.loop.run_until_complete(asyncio.sleep(0))
        return client

    def response(self, client: socket.socket) -> bytes:
        """What the client gets until the end of the connection."""

        async def receive() -> bytes:
            got = b""
            while part := await self._bench.loop.sock_recv(client, 1 << 16):
                got += part
            return got

        return self._bench.loop.run_until_complete(asyncio.wait_for(receive(), SECONDS))

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.server.close()


def is_open(client: socket.socket) -> bool:
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.fixture
def pages(bench: Bench) -> Iterator[Pages]:
    made = Pages(bench)
    yield made
    made.close()


@pytest.mark.parametrize("sent", [b"", GET[:-1], HALF_A_PUT, b"GET /large HTTP/1.1\r\n\r\n"])
def test_silent_clients_of_one_address_give_way_to_others_of_it(pages: Pages, sent: bytes) -> None:
    other = pages.connect("127.0.0.2")
    silent = [pages.connect("127.0.0.1", sent) for _ in range(6)]

    asked = pages.response(pages.connect("127.0.0.1", GET))

    assert asked.endswith(b"\r\n\r\nready")
    assert is_open(other)
    assert is_open(silent[-1])


def test_when_all_places_are_taken_the_oldest_silent_client_gives_way(pages: Pages) -> None:
    silent = [pages.connect(host) for host in ("127.0.0.2", "127.0.0.1", "127.0.0.2", "127.0.0.1")]

    asked = pages.response(pages.connect("127.0.0.3", GET))

    assert asked.endswith(b"\r\n\r\nready")
    assert [is_open(client) for client in silent] == [False, True, True, True]


def test_a_client_whose_request_is_being_served_does_not_give_way(pages: Pages) -> None:
    served = [pages.connect("127.0.0.1", PUT) for _ in range(2)]

    refused = pages.connect("127.0.0.1", GET)

    assert not is_open(refused)
    for respond in pages.waiting:
        respond(HttpResponse(200, b"done"))
    assert [pages.response(client)[-4:] for client in served] == [b"done", b"done"]
