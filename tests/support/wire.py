"""A connection that speaks the Kafka protocol, or anything else, without opinions of its own."""

import socket
import struct
from typing import TypeVar

from penstock.core.protocol import Message, RequestHeader, request_frame
from penstock.core.protocol.frames import read_response_header
from penstock.core.protocol.messages.registry import APIS

M = TypeVar("M", bound=Message)
SECONDS_MAX = 60


class Wire:
    """One client."""

    def __init__(self, address: tuple[str, int], client_id: str = "test") -> None:
        self.address = address
        self.socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self._client_id = client_id
        self._sent = self._answered = 0

    def ask(self, request: Message, answer: type[M], version: int) -> M:
        """Send a request and read its response, which must be nothing but that message."""
        self.send(request, version)
        read = self.read(answer, version)
        assert self._answered == self._sent, "this answers another request"
        return read

    def send(self, request: Message, version: int) -> None:
        self._sent += 1
        self.socket.sendall(frame_of(request, version, self._sent, self._client_id))

    def read(self, answer: type[M], version: int) -> M:
        api_key = answer.__schema__.api_key
        assert api_key is not None
        frame = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        self._answered, position = read_response_header(APIS[api_key], version, frame)
        return answer.decode(frame, version, position)

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            more = self.socket.recv(count - len(received))
            assert more, "the node closed the connection"
            received += more
        return bytes(received)

    def is_closed_by_the_node(self) -> bool:
        """Wait for the node to close the connection; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()


def frame_of(request: Message, version: int, correlation_id: int = 1, client_id: str = "test") -> bytes:
    api_key = request.__schema__.api_key
    assert api_key is not None
    return bytes(
        request_frame(APIS[api_key], RequestHeader(api_key, version, correlation_id, client_id), request)
    )
