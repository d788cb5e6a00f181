"""A client's connection to one node: requests in the bytes of the Kafka protocol, several in flight.

Responses come in the order of the requests, as Kafka guarantees; anything else is an anomaly.
"""

import enum
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.core.protocol import Message, RequestHeader, decoder, request_frame
from penstock.core.protocol.frames import read_response_header
from penstock.core.protocol.messages.registry import APIS, Api
from penstock.runtime import Address
from penstock.sim.tcp import SimulatedTcp

SIZE_BYTES = 4
_SIZE = struct.Struct(">i")
_IDS = 1 << 31


class RequestLost(enum.Enum):
    """No response will come. Whether the request was carried out is unknown."""

    LOST = "lost"


# Called once with the response, or with LOST.
Answered: TypeAlias = Callable[[Any], None]
# Called with the response when the node writes it, whether or not it arrives.
Observe: TypeAlias = Callable[[Any], None]


class _Frames:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_content",)

    def __init__(self) -> None:
        self._content = b""

    def add(self, content: bytes) -> list[bytes]:
        """Return the frames that are complete now, without their sizes."""
        content = self._content + content if self._content else content
        frames, position, end = [], 0, len(content)
        while end - position >= SIZE_BYTES:
            begin = position + SIZE_BYTES
            size = _SIZE.unpack_from(content, position)[0]
            if end - begin < size:
                break
            position = begin + size
            frames.append(content[begin:position])
        self._content = content[position:]
        return frames


class _Pending:
    """A request without a response."""

    __slots__ = ("_api", "_response", "_version", "answered", "observe")

    def __init__(self, api: Api, version: int, answered: Answered, observe: Observe | None) -> None:
        self._api = api
        self._version = version
        self._response: tuple[bytes, Message] | None = None
        self.answered = answered
        self.observe = observe

    def read(self, frame: bytes) -> Message:
        """The response in a frame; the same bytes are decoded once."""
        if self._response is not None and self._response[0] == frame:
            return self._response[1]
        _, position = read_response_header(self._api, self._version, frame)
        response: Message
        response, end = decoder(self._api.response, self._version)(frame, position)
        assert end == len(frame), f"{self._api.name} {self._version}: bytes follow the response"
        self._response = (frame, response)
        return response


class ClientConnection:
    """One connection; it ends when either side closes it, or the node dies."""

    def __init__(
        self, tcp: SimulatedTcp, host: str, address: Address, disorder: Callable[[str], None]
    ) -> None:
        """`disorder` is called with responses that nobody asked for, or that come out of turn."""
        self._socket = tcp.connect(host, address, self)
        self._client_id = host
        self._address = address
        self._disorder = disorder
        self._last_id = tcp.network.random.randrange(_IDS)
        # In the order of sending: what the node has not written yet, and what the client has not got yet.
        self._unwritten: dict[int, _Pending] = {}
        self._unread: dict[int, _Pending] = {}
        self._written = _Frames()
        self._received = _Frames()
        self.is_over = False

    def ask(self, message: Message, version: int, answered: Answered, observe: Observe | None) -> int:
        """Send a request, and return its correlation id.

        `answered` is called once, unless the client closes the connection first.
        """
        api_key = message.__schema__.api_key
        assert api_key is not None
        api = APIS[api_key]
        self._last_id = correlation_id = (self._last_id + 1) % _IDS
        pending = _Pending(api, version, answered, observe)
        self._unwritten[correlation_id] = self._unread[correlation_id] = pending
        header = RequestHeader(api_key, version, correlation_id, self._client_id)
        self._socket.send(bytes(request_frame(api, header, message)))
        return correlation_id

    def written(self, content: bytes) -> None:
        for frame in self._written.add(content):
            pending = self._next(self._unwritten, frame)
            if pending is not None and pending.observe is not None:
                pending.observe(pending.read(frame))

    def received(self, content: bytes) -> None:
        for frame in self._received.add(content):
            pending = self._next(self._unread, frame)
            if pending is not None:
                pending.answered(pending.read(frame))
            if self.is_over:
                return

    def _next(self, waiting: dict[int, _Pending], frame: bytes) -> _Pending | None:
        correlation_id = _SIZE.unpack_from(frame)[0]
        expected = next(iter(waiting), None)
        if expected != correlation_id:
            self._disorder(
                f"response out of turn: {self._address.host} sent {correlation_id} to {self._client_id}, "
                f"who waits for {expected}"
            )
        return waiting.pop(correlation_id, None)

    def give_up(self, correlation_id: int) -> None:
        """The request timed out: if it has no response yet, the client closes the connection."""
        if correlation_id in self._unread:
            self.close()

    def close(self) -> None:
        """Expect nothing more: every waiting request is lost."""
        if not self.is_over:
            self._socket.close()
            self.closed()

    def closed(self) -> None:
        self.is_over = True
        waiting, self._unread = self._unread, {}
        for pending in waiting.values():
            pending.answered(RequestLost.LOST)
