"""TLS over real loopback sockets: handshakes that take turns, and what is kept of those that end."""

import asyncio
import gc
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop

from penstock.core.model import Instant, NodeId, Timestamp
from penstock.runtime import Address
from penstock.runtime.tcp import Acceptor, SocketTcpConnection, TcpConnection
from penstock.runtime.timers import LoopTimers
from penstock.runtime.tls import HANDSHAKE_TURN_NS, TlsConnection, TlsSessions
from penstock.security.certificates import create_authority, create_node_certificate

TURNS_MAX = 20_000
STRANGERS = 20


class SlowClock:
    """A clock by which whatever is timed takes a whole turn."""

    def __init__(self) -> None:
        self.instant = 0

    def now(self) -> Instant:
        self.instant += HANDSHAKE_TURN_NS
        return Instant(self.instant)

    def wall(self) -> Timestamp:
        return Timestamp(0)


class Echo:
    """Sends back what it gets."""

    def __init__(self, connection: TcpConnection) -> None:
        self.connection = connection
        self._scratch = bytearray(4_096)

    def get_buffer(self) -> memoryview:
        return memoryview(self._scratch)

    def buffer_updated(self, count: int) -> None:
        self.connection.write([bytes(self._scratch[:count])])

    def drained(self) -> None:
        pass

    def eof_received(self) -> bool:
        return False

    def closed(self) -> None:
        pass


class TlsDoor:
    """A listener with TLS on a free port, and the connections that it has accepted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: ssl.SSLContext) -> None:
        self.loop = loop
        self.pipes: list[SocketTcpConnection] = []
        self.clients: list[socket.socket] = []
        clock = SlowClock()
        self.sessions = TlsSessions(clock, LoopTimers(loop, clock, lambda act: act()))
        self._context = context
        self.acceptor = Acceptor(loop, Address("127.0.0.1", 0), self._welcome)

    def _welcome(self, pipe: SocketTcpConnection) -> TlsConnection:
        self.pipes.append(pipe)
        connection = TlsConnection(pipe, self._context, Echo, self.sessions)
        connection.on_closed = partial(self._ended, connection)
        return connection

    def _ended(self, connection: TlsConnection) -> None:
        assert not connection.is_open

    def connect(self, source: str) -> socket.socket:
        client = socket.create_connection(self.acceptor.address, source_address=(source, 0))
        client.setblocking(False)
        self.clients.append(client)
        return client

    def begun(self) -> list[str]:
        """The addresses of those whose handshake was gone on with."""
        return [pipe.host for pipe in self.pipes if pipe.sent_bytes]

    def turn(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

    def kept(self) -> list[object]:
        """The connections that are still in memory, once the loop has let go of those that have ended."""
        self.pipes.clear()
        for _ in range(10):
            self.turn()
        return [one for one in gc.get_objects() if isinstance(one, (TlsConnection, Echo))]

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(TURNS_MAX):
            if condition():
                return
            self.turn()
        raise AssertionError("it did not happen")


def hello() -> bytes:
    """What a client says first."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    return create_authority(directory, "tests").certificate


@pytest.fixture(scope="module")
def context(authority: Path) -> ssl.SSLContext:
    files = create_node_certificate(authority.parent, NodeId(1), ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


@pytest.fixture
def door(context: ssl.SSLContext) -> Iterator[TlsDoor]:
    loop = uvloop.new_event_loop()
    door = TlsDoor(loop, context)
    yield door
    for client in door.clients:
        client.close()
    door.acceptor.close()
    loop.close()


def test_handshakes_that_come_together_take_turns_of_the_loop(door: TlsDoor) -> None:
    clients = [door.connect("127.0.0.1") for _ in range(STRANGERS)]
    door.until(lambda: len(door.pipes) == STRANGERS)
    for client in clients:
        client.sendall(hello())

    begun = [0]

    def note() -> None:
        begun.append(len(door.begun()))
        door.loop.call_soon(note)

    note()
    door.until(lambda: begun[-1] == STRANGERS)

    # One that was read, and one that had waited.
    assert max(after - before for before, after in pairwise(begun)) <= 2


def test_a_handshake_does_not_wait_for_all_those_of_another_address(door: TlsDoor) -> None:
    clients = [door.connect("127.0.0.1") for _ in range(STRANGERS)] + [door.connect("127.0.0.2")]
    door.until(lambda: len(door.pipes) == STRANGERS + 1)
    for client in clients:
        client.sendall(hello())

    door.until(lambda: "127.0.0.2" in door.begun())

    assert len(door.begun()) < STRANGERS / 2


def test_who_has_waited_for_the_handshake_is_served(door: TlsDoor, authority: Path) -> None:
    waiting = [door.connect("127.0.0.1") for _ in range(STRANGERS)]
    door.until(lambda: len(door.pipes) == STRANGERS)
    for client in waiting:
        client.sendall(hello())
    trusting = ssl.create_default_context(cafile=str(authority))

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection(
            *door.acceptor.address, ssl=trusting, server_hostname="localhost"
        )
        writer.write(b"well-behaved")
        received = await reader.readexactly(len(b"well-behaved"))
        writer.close()
        await writer.wait_closed()
        return received

    assert door.loop.run_until_complete(exchange()) == b"well-behaved"


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is freed is freed because nobody refers to it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_nothing_is_kept_of_a_stranger_who_has_left(door: TlsDoor) -> None:
    clients = [door.connect("127.0.0.1") for _ in range(STRANGERS)]
    door.until(lambda: len(door.pipes) == STRANGERS)
    clients[0].sendall(hello())

    for client in clients:
        client.close()
    door.until(lambda: not door.acceptor.connections)

    # Though the time that they had for their handshake is not over.
    assert not door.kept()


@pytest.mark.usefixtures("no_collector")
def test_nothing_is_kept_of_a_client_who_was_served_and_has_left(door: TlsDoor, authority: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(authority))

    async def visit() -> None:
        _, writer = await asyncio.open_connection(
            *door.acceptor.address, ssl=trusting, server_hostname="localhost"
        )
        writer.close()
        await writer.wait_closed()

    door.loop.run_until_complete(visit())
    door.until(lambda: bool(door.pipes) and not door.acceptor.connections)

    assert not door.kept()
