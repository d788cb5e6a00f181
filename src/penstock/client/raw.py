"""One socket and our own codec: a client whose overhead is small and known."""

import socket
from typing import Any

from penstock.client.endpoint import REQUEST_SECONDS, Endpoint
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.core.wire import (
    APIS,
    Api,
    ErrorCode,
    Message,
    RequestHeader,
    api,
    decode_whole,
    read_response_header,
    request_frame,
)
from penstock.core.wire.kafka.api_versions import ApiVersionsRequest

CLIENT_ID = "penstock-bench"
RESPONSE_BYTES_MAX = 256 << 20


class RawConnection:
    """Asks one question after the other; a frame can be made beforehand and sent many times."""

    def __init__(self, address: tuple[str, int], versions: dict[int, int] | None = None) -> None:
        try:
            self._socket = socket.create_connection(address, REQUEST_SECONDS)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BrokerUnreachable(f"no broker at {address[0]}:{address[1]}: {why}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._versions = versions if versions is not None else self._ask_versions()

    def close(self) -> None:
        self._socket.close()

    @property
    def versions(self) -> dict[int, int]:
        """For each API the highest version that both sides speak."""
        return self._versions

    def frame(self, request: Message) -> bytearray:
        """A whole request, ready for `exchange`."""
        about = about_request(request)
        header = RequestHeader(about.key, self._versions[about.key], 1, CLIENT_ID)
        return request_frame(about, header, request)

    def exchange(self, frame: bytearray) -> bytes:
        """Send a frame and answer the bytes of its response, without the size."""
        self._socket.sendall(frame)
        return self.receive()

    def receive(self) -> bytes:
        """The next response."""
        received = self._socket.recv(65_536)
        while len(received) < 4:
            received += self._more()
        size = int.from_bytes(received[:4], "big")
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise ClientError(f"the broker announced a response of {size} bytes")
        if len(received) == size + 4:
            return received[4:]
        whole = bytearray(received[4:])
        while len(whole) < size:
            whole += self._more()
        return bytes(whole)

    def ask(self, request: Message) -> Any:
        """Send a request and decode its answer."""
        about = about_request(request)
        version = self._versions[about.key]
        response = self.exchange(self.frame(request))
        _, position = read_response_header(about, version, response)
        return decode_whole(about.response, response, version, position)

    def _more(self) -> bytes:
        received = self._socket.recv(1 << 20)
        if not received:
            raise ClientError("the broker closed the connection")
        return received

    def _ask_versions(self) -> dict[int, int]:
        self._versions = {18: 0}
        answer = self.ask(ApiVersionsRequest())
        if answer.error_code != ErrorCode.NONE:
            raise ClientError(f"ApiVersions was answered with error {answer.error_code}")
        return {
            one.api_key: min(one.max_version, APIS[one.api_key].versions[-1])
            for one in answer.api_keys
            if one.api_key in APIS
        }


def about_request(request: Message) -> Api:
    key = request.__schema__.api_key
    assert key is not None
    return api(key)


def connect(endpoint: Endpoint) -> RawConnection:
    """A connection to the first bootstrap address."""
    return RawConnection(endpoint.addresses()[0])
