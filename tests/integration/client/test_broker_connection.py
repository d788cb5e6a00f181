"""One socket to a broker, whatever pieces its responses come in."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from penstock.client import BrokerUnreachable, Disconnected
from penstock.client.connection import BrokerConnection
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSIONS = {12: 0}
REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
SECONDS_MAX = 10.0


def answer(correlation_id: int, error_code: int = 0) -> bytes:
    body = bytes(HeartbeatResponse(error_code=error_code).encode(0))
    return frame(correlation_id.to_bytes(4, "big") + body)


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@contextmanager
def broker(*pieces: bytes) -> Iterator[tuple[str, int]]:
    """Accepts one connection, waits for its first request, sends the pieces and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.recv(1 << 16)
                for piece in pieces:
                    client.sendall(piece)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass

        thread = Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


@contextmanager
def connected(*pieces: bytes) -> Iterator[BrokerConnection]:
    with broker(*pieces) as address:
        connection = BrokerConnection(address, versions=VERSIONS, request_seconds=SECONDS_MAX)
        try:
            yield connection
        finally:
            connection.close()


def test_answers_that_come_together_are_taken_apart_in_order() -> None:
    with connected(answer(1, 5) + answer(2, 6) + answer(3, 7)[:7], answer(3, 7)[7:]) as connection:
        for _ in range(3):
            connection.send(REQUEST)

        codes = [connection.receive().error_code for _ in range(3)]

        assert codes == [5, 6, 7]
        assert not connection.is_waiting


def test_an_answer_that_comes_byte_by_byte_is_put_together() -> None:
    pieces = [bytes((byte,)) for byte in answer(1, 9)]

    with connected(*pieces) as connection:
        assert connection.ask(REQUEST).error_code == 9


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 4, (1 << 16) - 3, 3 << 20])
def test_frames_of_any_size_are_followed_by_the_next(size: int) -> None:
    large = bytes(range(256)) * (size // 256 + 1)

    with connected(frame(large[:size]) + frame(b"next") + frame(large[:size])) as connection:
        received = [connection.exchange(connection.frame(REQUEST)) for _ in range(3)]

    assert received == [large[:size], b"next", large[:size]]


def test_a_broker_that_closes_the_connection_or_sends_nonsense_is_disconnected() -> None:
    for pieces, complaint in (
        ((), "the broker closed the connection"),
        ((answer(1)[:-1],), "the broker closed the connection"),
        ((b"\xff\xff\xff\xff",), "announced a response of -1 bytes"),
        ((b"HTTP/1.1 400 Bad Request\r\n",), "announced a response of 1213486160 bytes"),
        ((answer(2),), "responded to request 2, not 1"),
        ((frame(b"\0\0\0\1"),), "HeartbeatResponse"),
    ):
        with connected(*pieces) as connection, pytest.raises(Disconnected, match=complaint):
            connection.ask(REQUEST)


def test_silence_is_an_end_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = BrokerConnection(server.getsockname(), versions=VERSIONS, request_seconds=0.05)

        with pytest.raises(Disconnected, match="no response in time"):
            connection.ask(REQUEST)

        connection.close()


def test_nobody_at_an_address_is_told_with_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

    with pytest.raises(
        BrokerUnreachable, match=rf"no broker at 127\.0\.0\.1:{address[1]}: connection refused"
    ):
        BrokerConnection(address)
