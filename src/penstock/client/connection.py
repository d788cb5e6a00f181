"""One socket to one broker and our own codec.

For measurements that must not measure a client, for Spark's readers, and for requests that
librdkafka has no call for.

    ask(request)                     a request and its response
    send(request) … receive()        requests ahead of their responses, which come in the same order
    frame(request), exchange(frame)  bytes that are made once and sent many times

ApiVersions gives the versions that both sides speak, unless the caller knows them.
"""

import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from penstock.client.connection_security import ConnectionSecurity, LoginFailed
from penstock.client.endpoint import REQUEST_SECONDS, ClientError, Disconnected, Endpoint, no_broker
from penstock.core.model import ProtocolError
from penstock.core.protocol import (
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
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest
from penstock.core.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

BrokerAddress: TypeAlias = tuple[str, int]
CLIENT_ID = "penstock"
RESPONSE_BYTES_MAX = 512 << 20
CONNECT_SECONDS = 10.0
_SIZE_BYTES = 4
# A small response comes with one call, size and all; of a large one the first call brings a part.
_FIRST_BYTES = 1 << 16
_API_VERSIONS = {18: 0}


class _Awaited(NamedTuple):
    """A request that was sent and has no response yet."""

    api: Api
    version: int
    correlation_id: int


class BrokerConnection:
    """A request may be sent before the response to the one before it was read.

    A response lies in a buffer that is used again for the next one: bytes in it must be
    copied before.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str = CLIENT_ID,
        request_seconds: float = REQUEST_SECONDS,
        versions: Mapping[int, int] | None = None,
        security: ConnectionSecurity | None = None,
    ) -> None:
        self._name = f"{address[0]}:{address[1]}"
        self._security = security
        self._client_id = client_id
        self._correlation_id = 0
        self._awaited: deque[_Awaited] = deque()
        # Received and not handed out yet is what lies between these two.
        self._start = self._end = 0
        self._buffer = memoryview(bytearray(_FIRST_BYTES))
        try:
            self._socket = socket.create_connection(address, min(CONNECT_SECONDS, request_seconds))
            self._socket.settimeout(request_seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None:
                self._socket = security.wrap(self._socket, address[0])
        except OSError as error:
            raise no_broker(self._name, _reason(error)) from None
        self._versions: Mapping[int, int] = _API_VERSIONS if versions is None else versions
        try:
            if security is not None and security.mechanism is not None:
                self._log_in(security, security.mechanism)
            if versions is None:
                self._versions = self._ask_versions()
        except ClientError:
            self.close()
            raise

    def _log_in(self, security: ConnectionSecurity, mechanism: str) -> None:
        self.send(SaslHandshakeRequest(mechanism=mechanism), 1)
        agreed: SaslHandshakeResponse = self.receive()
        if agreed.error_code != ErrorCode.NONE:
            offered = ", ".join(agreed.mechanisms) or "no login"
            raise LoginFailed(f"{self._name} does not offer {mechanism}: it has {offered}")

        def exchange(content: bytes) -> bytes:
            self.send(SaslAuthenticateRequest(auth_bytes=content), 2)
            answer: SaslAuthenticateResponse = self.receive()
            if answer.error_code != ErrorCode.NONE:
                raise LoginFailed(f"{self._name}: {answer.error_message or 'the login was refused'}")
            return bytes(answer.auth_bytes)

        security.log_in(exchange)

    def sibling(self, address: BrokerAddress) -> "BrokerConnection":
        """A connection to another broker of the same cluster, with the same login."""
        return BrokerConnection(address, client_id=self._client_id, security=self._security)

    def close(self) -> None:
        self._socket.close()

    @property
    def versions(self) -> Mapping[int, int]:
        """For each API the highest version that both sides speak."""
        return self._versions

    @property
    def is_waiting(self) -> bool:
        """Whether a response is still to come."""
        return bool(self._awaited)

    def version(self, request: type[Message]) -> int:
        """The highest version of a request that both sides speak."""
        return self._versions[api_of(request).key]

    def send(self, request: Message, version: int | None = None) -> None:
        """Send a request, without waiting for the response."""
        about = api_of(type(request))
        if version is None:
            version = self._versions[about.key]
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(about.key, version, self._correlation_id, self._client_id)
        self._send(request_frame(about, header, request))
        self._awaited.append(_Awaited(about, version, self._correlation_id))

    def receive(self) -> Any:
        """The response to the oldest request that has none yet."""
        asked = self._awaited.popleft()
        frame = self._receive()
        try:
            answered, position = read_response_header(asked.api, asked.version, frame)
            if answered != asked.correlation_id:
                raise Disconnected(
                    f"{self._name}: responded to request {answered}, not {asked.correlation_id}"
                )
            return decode_whole(asked.api.response, frame, asked.version, position)
        except ProtocolError as broken:
            raise Disconnected(f"{self._name}: {broken}") from None

    def ask(self, request: Message) -> Any:
        """Send a request, and wait for the response."""
        self.send(request)
        return self.receive()

    def frame(self, request: Message) -> bytearray:
        """A whole request, ready for `exchange`."""
        about = api_of(type(request))
        header = RequestHeader(about.key, self._versions[about.key], 1, self._client_id)
        return request_frame(about, header, request)

    def exchange(self, frame: bytes | bytearray) -> bytes:
        """Send a frame and return the bytes of its response, without the size."""
        self._send(frame)
        return bytes(self._receive())

    def _send(self, frame: bytes | bytearray) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise Disconnected(f"{self._name}: {_reason(error)}") from None

    def _receive(self) -> memoryview:
        """The next response, without its size; good until the next call."""
        if self._start:
            # What came behind the last response begins the next one.
            rest = self._end - self._start
            self._buffer[:rest] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, rest
        while self._end < _SIZE_BYTES:
            self._end += self._receive_into(self._buffer[self._end : _FIRST_BYTES])
        size = int.from_bytes(self._buffer[:_SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise Disconnected(f"{self._name}: announced a response of {size} bytes")
        whole = _SIZE_BYTES + size
        if whole > len(self._buffer):
            larger = memoryview(bytearray(whole + (whole >> 2)))
            larger[: self._end] = self._buffer[: self._end]
            self._buffer = larger
        while self._end < whole:
            self._end += self._receive_into(self._buffer[self._end : whole])
        if self._end == whole:
            self._end = 0
        else:
            self._start = whole
        return self._buffer[_SIZE_BYTES:whole]

    def _receive_into(self, view: memoryview) -> int:
        try:
            received = self._socket.recv_into(view)
        except OSError as error:
            raise Disconnected(f"{self._name}: {_reason(error)}") from None
        if not received:
            raise Disconnected(f"{self._name}: the broker closed the connection")
        return received

    def _ask_versions(self) -> dict[int, int]:
        answer = self.ask(ApiVersionsRequest())
        if answer.error_code != ErrorCode.NONE:
            raise Disconnected(f"{self._name}: ApiVersions failed with error {answer.error_code}")
        return {
            one.api_key: min(one.max_version, APIS[one.api_key].versions[-1])
            for one in answer.api_keys
            if one.api_key in APIS and one.min_version <= APIS[one.api_key].versions[-1]
        }


def api_of(request: type[Message]) -> Api:
    """The API that a kind of request belongs to."""
    key = request.__schema__.api_key
    assert key is not None
    return api(key)


def security_of(endpoint: Endpoint) -> ConnectionSecurity | None:
    """What connections to the endpoint do first; None for plain ones."""
    return None if endpoint.is_plaintext else ConnectionSecurity(endpoint.options)


def connect(endpoint: Endpoint) -> BrokerConnection:
    """A connection to the first of the bootstrap addresses where a broker responds."""
    *others, last = endpoint.addresses()
    security = security_of(endpoint)
    for address in others:
        try:
            return BrokerConnection(address, security=security)
        except Disconnected:
            continue
    return BrokerConnection(last, security=security)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    return (error.strerror or str(error) or type(error).__name__).lower()
