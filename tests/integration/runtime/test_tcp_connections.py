"""Pipes over real loopback sockets and files."""

import asyncio
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from penstock.core.model import StorageError
from penstock.runtime import Address, AddressUnavailable
from penstock.runtime.tcp import (
    CLOSED_PER_TURN,
    SPANS_PER_TURN_MAX,
    Acceptor,
    ConnectionQuotaLimits,
    ConnectionQuotas,
    Part,
    SocketTcpConnection,
)

SECONDS_MAX = 20.0
TURNS_MAX = 500_000


class Recorder:
    """Keeps what arrives; responds with `reply` when the first bytes are there."""

    def __init__(self, pipe: SocketTcpConnection, reply: list[Part] | None = None) -> None:
        self.tcp = pipe
        self.got = bytearray()
        self.drains = 0
        self.closes = 0
        self.has_something_left = False
        self._reply = reply
        self._scratch = bytearray(4096)

    def get_buffer(self) -> memoryview:
        return memoryview(self._scratch)

    def buffer_updated(self, count: int) -> None:
        self.got += self._scratch[:count]
        reply, self._reply = self._reply, None
        if reply is not None:
            self.tcp.write(reply)

    def drained(self) -> None:
        self.drains += 1

    def eof_received(self) -> bool:
        return self.has_something_left

    def closed(self) -> None:
        self.closes += 1


class FileSpan:
    def __init__(self, descriptor: int, position: int, length: int) -> None:
        self._descriptor, self.position, self.length = descriptor, position, length

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bytes:
        return os.pread(self._descriptor, self.length, self.position)


class Door:
    """An acceptor on a free port, with the handlers it made."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        quotas: ConnectionQuotas | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.loop = loop
        self.handlers: list[Recorder] = []
        self.reply: list[Part] | None = None
        self.protocol = Recorder
        self.acceptor = Acceptor(loop, Address(host, 0), self._welcome, quotas=quotas)

    def _welcome(self, pipe: SocketTcpConnection) -> Recorder:
        self.handlers.append(self.protocol(pipe, self.reply))
        return self.handlers[-1]

    def connect(self) -> socket.socket:
        client = socket.create_connection(self.acceptor.address)
        client.setblocking(False)
        return client

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn until the condition holds; the sockets set the pace, not a clock."""
        for _ in range(TURNS_MAX):
            if condition():
                return
            self.loop.run_until_complete(asyncio.sleep(0))
        raise AssertionError("it did not happen")

    def read(self, client: socket.socket, length: int) -> bytes:
        async def receive() -> bytes:
            got = bytearray()
            while len(got) < length:
                got += await self.loop.sock_recv(client, 1 << 16)
            return bytes(got)

        return self.loop.run_until_complete(asyncio.wait_for(receive(), SECONDS_MAX))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def door(loop: asyncio.AbstractEventLoop) -> Iterator[Door]:
    door = Door(loop)
    yield door
    door.acceptor.close()


def test_buffers_and_file_spans_arrive_in_the_order_they_were_written(door: Door, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "segment").write_bytes(content)
    with (tmp_path / "segment").open("rb") as file:
        door.reply = [
            b"head",
            FileSpan(file.fileno(), 100, 2_500_000),
            bytearray(b"mid"),
            b"",
            memoryview(b"tail"),
        ]
        client = door.connect()

        client.send(b"?")
        expected = b"head" + content[100:2_500_100] + b"mid" + b"tail"
        got = door.read(client, len(expected))

    assert got == expected
    assert door.handlers[0].tcp.pending_bytes == 0
    assert door.handlers[0].tcp.sent_bytes == len(expected)
    client.close()


def test_very_many_short_spans_are_sent_over_several_turns_of_the_loop(door: Door, tmp_path: Path) -> None:
    sent = Counter[int]()

    class CountedSpan(FileSpan):
        def fileno(self) -> int:
            sent[turn] += 1
            return super().fileno()

    turn = 0

    def turned() -> None:
        nonlocal turn
        turn += 1
        if sent.total() < count:
            door.loop.call_soon(turned)

    count = 5 * SPANS_PER_TURN_MAX
    with (tmp_path / "log").open("wb+") as file:
        file.write(bytes(count))
        file.flush()
        door.reply = [CountedSpan(file.fileno(), position, 1) for position in range(count)]
        client = door.connect()
        client.sendall(b"?")
        turned()
        door.until(lambda: sent.total() == count)
        assert len(door.read(client, count)) == count
        client.close()

    assert max(sent.values()) == SPANS_PER_TURN_MAX


def test_what_is_held_in_memory_follows_what_is_sent_between_spans(door: Door, tmp_path: Path) -> None:
    moved: list[int] = []
    count = 3 * SPANS_PER_TURN_MAX
    with (tmp_path / "log").open("wb+") as file:
        file.write(bytes(1))
        file.flush()
        door.reply = [part for _ in range(count) for part in (bytes(100), FileSpan(file.fileno(), 0, 1))]
        client = door.connect()
        door.until(lambda: bool(door.handlers))
        pipe = door.handlers[0].tcp
        pipe.account(moved.append)
        client.sendall(b"?")
        door.read(client, 101 * count)
        client.close()

    # The first turn sends one buffer more: it ends before a span.
    left = 100 * (count - SPANS_PER_TURN_MAX - 1)
    assert moved == [left, -100 * SPANS_PER_TURN_MAX, 100 * SPANS_PER_TURN_MAX - left]
    assert (pipe.held_bytes, pipe.pending_bytes) == (0, 0)


def test_a_reader_that_never_reads_leaves_the_rest_pending_and_other_clients_are_served(door: Door) -> None:
    door.reply = [bytes(64 << 20)]
    deaf = door.connect()
    deaf.send(b"?")
    door.until(lambda: len(door.handlers) == 1 and door.handlers[0].tcp.sent_bytes > 0)

    door.reply = [b"hello"]
    client = door.connect()
    client.send(b"?")

    assert door.read(client, 5) == b"hello"
    assert door.handlers[0].tcp.pending_bytes > 0
    assert door.handlers[0].drains == 0
    deaf.close()
    client.close()


def test_the_kernel_holds_little_for_a_client_that_does_not_read(door: Door) -> None:
    size = 16 << 20
    door.reply = [bytes(size)]
    deaf = socket.socket()
    # It takes little itself.
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    deaf.connect(door.acceptor.address)
    deaf.send(b"?")
    door.until(lambda: len(door.handlers) == 1 and door.handlers[0].tcp.sent_bytes > 0)

    for _ in range(100):
        door.loop.run_until_complete(asyncio.sleep(0))

    assert 0 < size - door.handlers[0].tcp.pending_bytes < 1 << 20
    deaf.close()


def test_what_a_connection_keeps_in_memory_is_reported_without_files(door: Door, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    door.reply = [bytes(64 << 20)]
    deaf = door.connect()
    deaf.send(b"?")
    door.until(lambda: len(door.handlers) == 1 and door.handlers[0].tcp.sent_bytes > 0)
    pipe, told = door.handlers[0].tcp, list[int]()
    at_first = pipe.held_bytes
    pipe.account(told.append)

    with (tmp_path / "file").open("rb") as file:
        pipe.write([bytes(1_000), FileSpan(file.fileno(), 0, 1 << 20), bytes(500)])
        more = pipe.held_bytes
        pipe.close()

    assert 0 < at_first < 64 << 20
    assert more == at_first + 1_500
    assert told == [1_500, -more]
    assert pipe.held_bytes == 0
    deaf.close()


def test_the_protocol_is_notified_when_what_was_pending_is_gone(door: Door) -> None:
    door.reply = [bytes(16 << 20)]
    client = door.connect()
    client.send(b"?")

    door.read(client, 16 << 20)
    door.until(lambda: door.handlers[0].drains == 1)

    assert door.handlers[0].tcp.pending_bytes == 0
    client.close()


def test_a_paused_connection_reads_nothing_until_it_is_resumed(door: Door) -> None:
    client = door.connect()
    door.until(lambda: len(door.handlers) == 1)
    handler = door.handlers[0]
    handler.tcp.pause()
    client.send(b"later")

    other = door.connect()
    other.send(b"now")
    door.until(lambda: len(door.handlers) == 2 and bytes(door.handlers[1].got) == b"now")

    assert bytes(handler.got) == b""
    handler.tcp.resume()
    door.until(lambda: bytes(handler.got) == b"later")
    client.close()
    other.close()


def test_a_reset_connection_is_closed_once_and_writing_to_it_is_harmless(door: Door) -> None:
    client = door.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    door.until(lambda: len(door.handlers) == 1)

    client.close()
    door.until(lambda: door.handlers[0].closes == 1)
    door.handlers[0].tcp.write([b"too late"])
    door.handlers[0].tcp.close()

    assert door.handlers[0].closes == 1
    assert door.acceptor.connections == 0


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_a_reset_that_comes_with_the_last_request_is_seen(door: Door) -> None:
    client = door.connect()
    door.until(lambda: len(door.handlers) == 1)

    # Both are in the socket before the loop looks again.
    client.send(b"a request that is never answered")
    reset(client)
    door.until(lambda: door.handlers[0].closes == 1)

    assert bytes(door.handlers[0].got) == b"a request that is never answered"
    assert door.acceptor.connections == 0


def test_a_reset_is_seen_while_reads_are_paused(door: Door) -> None:
    client = door.connect()
    door.until(lambda: len(door.handlers) == 1)
    door.handlers[0].tcp.pause()

    reset(client)
    door.until(lambda: door.handlers[0].closes == 1)

    assert door.acceptor.connections == 0


def test_a_client_that_leaves_while_reads_are_paused_is_seen_to_leave(door: Door) -> None:
    client = door.connect()
    door.until(lambda: len(door.handlers) == 1)
    door.handlers[0].tcp.pause()

    client.close()
    door.until(lambda: door.handlers[0].closes == 1)

    assert door.acceptor.connections == 0


def test_a_pause_after_the_client_has_left_does_not_hide_that(door: Door) -> None:
    class OneByOne(Recorder):
        def buffer_updated(self, count: int) -> None:
            super().buffer_updated(count)
            self.tcp.pause()

    door.protocol = OneByOne
    client = door.connect()
    client.send(b"parked")
    client.close()

    door.until(lambda: len(door.handlers) == 1 and door.handlers[0].closes == 1)

    assert bytes(door.handlers[0].got) == b"parked"


@pytest.mark.parametrize("leave", [socket.socket.close, reset])
def test_what_a_client_sent_before_it_left_is_read_when_reads_resume(
    door: Door, leave: Callable[[socket.socket], None]
) -> None:
    client = door.connect()
    door.until(lambda: len(door.handlers) == 1)
    handler = door.handlers[0]
    handler.tcp.pause()
    client.send(b"x" * 10_000)
    leave(client)

    other = door.connect()
    other.send(b"now")
    door.until(lambda: len(door.handlers) == 2 and bytes(door.handlers[1].got) == b"now")
    closed_early = handler.closes
    handler.tcp.resume()
    door.until(lambda: handler.closes == 1)

    assert closed_early == 0
    assert len(handler.got) == 10_000
    other.close()


def test_a_protocol_that_has_something_left_to_serve_is_not_cut_off(door: Door) -> None:
    client = door.connect()
    door.until(lambda: len(door.handlers) == 1)
    handler = door.handlers[0]
    handler.has_something_left = True
    handler.tcp.pause()
    client.close()

    other = door.connect()
    other.send(b"now")
    door.until(lambda: len(door.handlers) == 2 and bytes(door.handlers[1].got) == b"now")
    closed_early = handler.closes
    handler.tcp.resume()
    door.until(lambda: handler.closes == 1)

    assert closed_early == 0
    other.close()


def test_a_file_truncated_while_it_is_sent_costs_the_connection(door: Door, tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(10))
    with (tmp_path / "segment").open("rb") as file:
        door.reply = [FileSpan(file.fileno(), 0, 1000)]
        client = door.connect()
        client.send(b"?")

        door.until(lambda: len(door.handlers) == 1 and door.handlers[0].closes == 1)

    client.close()


def test_connections_beyond_the_limit_are_turned_away(loop: asyncio.AbstractEventLoop) -> None:
    door = Door(loop, ConnectionQuotas(ConnectionQuotaLimits(connections_max=2)))
    first, second, third = door.connect(), door.connect(), door.connect()

    ended = loop.run_until_complete(asyncio.wait_for(loop.sock_recv(third, 1), SECONDS_MAX))

    assert ended == b""
    assert door.acceptor.connections == 2
    for client in (first, second, third):
        client.close()
    door.acceptor.close()


def test_connections_beyond_the_limit_of_their_address_are_turned_away_until_others_end(
    loop: asyncio.AbstractEventLoop,
) -> None:
    quotas = ConnectionQuotas(ConnectionQuotaLimits(per_address_max=2))
    door = Door(loop, quotas)
    first, second, third = door.connect(), door.connect(), door.connect()
    ended = loop.run_until_complete(asyncio.wait_for(loop.sock_recv(third, 1), SECONDS_MAX))

    first.close()
    door.until(lambda: quotas.connections == 1)
    fourth = door.connect()
    fourth.send(b"here")
    door.until(lambda: bytes(door.handlers[-1].got) == b"here")

    assert ended == b""
    assert (quotas.of("127.0.0.1"), quotas.refused) == (2, 1)
    for client in (second, third, fourth):
        client.close()
    door.acceptor.close()
    assert quotas.connections == 0


def test_connections_that_come_too_fast_wait_and_are_served_later(loop: asyncio.AbstractEventLoop) -> None:
    quotas = ConnectionQuotas()
    quotas.limits = ConnectionQuotaLimits(opened_per_second_max=20)
    door = Door(loop, quotas)

    clients = [door.connect() for _ in range(30)]
    door.until(lambda: len(door.handlers) == 20)
    door.until(lambda: len(door.handlers) == 30)

    assert quotas.refused == 0
    for client in clients:
        client.close()
    door.acceptor.close()


def test_an_address_that_is_taken_is_named_in_the_error(door: Door) -> None:
    with pytest.raises(AddressUnavailable, match=str(door.acceptor.address)):
        Acceptor(door.loop, door.acceptor.address, Recorder)


def test_a_span_whose_file_cannot_be_had_any_more_costs_the_connection_and_nothing_else(door: Door) -> None:
    class LostSpan(FileSpan):
        def fileno(self) -> int:
            raise StorageError("the file is gone")

    door.reply = [b"head", LostSpan(-1, 0, 100)]
    with door.connect() as client:
        client.send(b"?")
        door.until(lambda: bool(door.handlers) and door.handlers[0].closes == 1)

    door.reply = [b"served"]
    with door.connect() as other:
        other.send(b"?")
        assert door.read(other, 6) == b"served"


def test_the_kernel_looks_after_clients_that_vanish_while_nothing_is_sent(door: Door) -> None:
    with door.connect():
        door.until(lambda: bool(door.handlers))
        served = door.handlers[0].tcp._socket

        assert served.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_a_client_that_leaves_many_connections_at_once_has_a_few_of_them_closed_in_each_turn(
    door: Door, loop: asyncio.AbstractEventLoop
) -> None:
    closed_in_turn: Counter[int] = Counter()
    turn = 0

    class Counting(Recorder):
        def closed(self) -> None:
            super().closed()
            closed_in_turn[turn] += 1

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    door.protocol = Counting
    clients = [door.connect() for _ in range(10 * CLOSED_PER_TURN)]
    door.until(lambda: len(door.handlers) == len(clients))
    for number, client in enumerate(clients):
        if number % 2:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    count()
    door.until(lambda: door.acceptor.connections == 0)

    assert closed_in_turn.total() == len(clients)
    # A callback of the loop may fall between those that read and those that close.
    assert max(closed_in_turn.values()) <= 2 * CLOSED_PER_TURN


def test_a_client_has_its_own_address_at_a_socket_for_both_versions_of_ip(
    loop: asyncio.AbstractEventLoop,
) -> None:
    quotas = ConnectionQuotas()
    door = Door(loop, quotas, "::")
    port = door.acceptor.address.port
    clients = [socket.create_connection((host, port)) for host in ("127.0.0.1", "::1")]
    door.until(lambda: len(door.handlers) == 2)

    pipes = door.acceptor.pipes()
    assert [pipe.host for pipe in pipes] == [pipe.local[0] for pipe in pipes] == ["127.0.0.1", "::1"]
    assert pipes[0].peer == f"127.0.0.1:{clients[0].getsockname()[1]}"
    assert [quotas.of(host) for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1")] == [1, 1, 0]
    for client in clients:
        client.close()
    door.until(lambda: not door.acceptor.connections)
    assert [quotas.of(host) for host in ("127.0.0.1", "::1")] == [0, 0]
    door.acceptor.close()
