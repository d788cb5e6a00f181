"""One socket to one broker: questions go out in order, answers come back in order."""

import socket
from typing import Any

from penstock.core.model import ProtocolError
from penstock.core.wire import (
    APIS,
    ErrorCode,
    Message,
    RequestHeader,
    api,
    decode_whole,
    read_response_header,
    request_frame,
)
from penstock.core.wire.kafka.api_versions import ApiVersionsRequest

Address = tuple[str, int]

RESPONSE_BYTES_MAX = 512 << 20
CONNECT_SECONDS = 10.0
_API_VERSIONS = 18


class Disconnected(Exception):
    """The broker cannot be reached, hung up, or does not speak our protocol; another try may help."""


class Connection:
    """A question may be sent before the answer to the one before it was read.

    The buffer that an answer lies in is used again for the next one: records must be taken out of it
    before.
    """

    def __init__(self, address: Address, client_id: str, request_seconds: float) -> None:
        self._name = f"{address[0]}:{address[1]}"
        self._client_id = client_id
        self._correlation_id = 0
        self._awaited: list[tuple[int, int, int]] = []
        self._buffer = bytearray(1 << 16)
        try:
            self._socket = socket.create_connection(address, min(CONNECT_SECONDS, request_seconds))
            self._socket.settimeout(request_seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise Disconnected(f"{self._name}: {_why(error)}") from None
        self._versions: dict[int, int] = {_API_VERSIONS: 0}
        try:
            self._versions = self._ask_versions()
        except Disconnected:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._awaited)

    def version(self, request: type[Message]) -> int:
        """The highest version of a request that both sides speak."""
        return self._versions[_key(request)]

    def send(self, request: Message, version: int | None = None) -> None:
        """Ask, without waiting for the answer."""
        key = _key(type(request))
        if version is None:
            version = self._versions[key]
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(key, version, self._correlation_id, self._client_id)
        try:
            self._socket.sendall(request_frame(api(key), header, request))
        except OSError as error:
            raise Disconnected(f"{self._name}: {_why(error)}") from None
        self._awaited.append((key, version, self._correlation_id))

    def receive(self) -> Any:
        """The answer to the oldest question that has none yet."""
        key, version, correlation_id = self._awaited.pop(0)
        frame = self._frame()
        about = api(key)
        try:
            answered, position = read_response_header(about, version, frame)
            if answered != correlation_id:
                raise Disconnected(f"{self._name}: answered question {answered}, not {correlation_id}")
            return decode_whole(about.response, frame, version, position)
        except ProtocolError as broken:
            raise Disconnected(f"{self._name}: {broken}") from None

    def ask(self, request: Message) -> Any:
        """Ask, and wait for the answer."""
        self.send(request)
        return self.receive()

    def _frame(self) -> memoryview:
        size = int.from_bytes(self._exactly(4), "big")
        if size > RESPONSE_BYTES_MAX:
            raise Disconnected(f"{self._name}: announced an answer of {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size + (size >> 2))
        view = memoryview(self._buffer)[:size]
        position = 0
        try:
            while position < size:
                received = self._socket.recv_into(view[position:])
                if not received:
                    raise Disconnected(f"{self._name}: the broker closed the connection")
                position += received
        except OSError as error:
            raise Disconnected(f"{self._name}: {_why(error)}") from None
        return view

    def _ask_versions(self) -> dict[int, int]:
        answer = self.ask(ApiVersionsRequest())
        if answer.error_code != ErrorCode.NONE:
            raise Disconnected(f"{self._name}: ApiVersions was answered with error {answer.error_code}")
        return {
            one.api_key: min(one.max_version, APIS[one.api_key].versions[-1])
            for one in answer.api_keys
            if one.api_key in APIS and one.min_version <= APIS[one.api_key].versions[-1]
        }


def _key(request: type[Message]) -> int:
    key = request.__schema__.api_key
    assert key is not None
    return key


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error) or type(error).__name__).lower()
