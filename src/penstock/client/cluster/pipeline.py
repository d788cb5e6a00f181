"""One connection to one broker: requests ahead of their responses, which come in the same order.

    pipeline = await open_pipeline(address, client_id)
    response = await pipeline.ask(request)          # any number at once
    pipeline.send(request)                          # Produce with acks 0, which has no response

A request that waits at the broker (Produce, Fetch, QueueReceive) holds up every one behind it, so such
requests have connections of their own; `ClusterClient` sees to that.

A connection that acts for somebody logs in before its first request, and again while the login counts
(KIP-368). It waits for the responses that are still to come before that, however long they take: a login
behind a request that waits would not be answered in time. New requests wait for the login.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from penstock.client.cluster.errors import ClusterError, ConnectionLost, expect
from penstock.client.cluster.security import ClusterSecurity
from penstock.client.connection import RESPONSE_BYTES_MAX, BrokerAddress, api_of
from penstock.client.connection_security import ConnectionSecurity, LoginFailed
from penstock.core.model import ProtocolError
from penstock.core.protocol import (
    APIS,
    Api,
    ErrorCode,
    Message,
    RequestHeader,
    decode_whole,
    read_response_header,
    request_frame,
)
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.core.sasl.delegation import DELEGATE

CONNECT_SECONDS = 10.0
# Silence for so long, with a request that nobody waits for any more: the broker is not there.
STALLED_SECONDS = 5.0
# When a login is repeated, of the time that it counts; and how long that may take.
LOGIN_SHARE = 0.4
LOGIN_SECONDS = 15.0
_SIZE_BYTES = 4
_API_VERSIONS_KEY = 18
# The last versions that name topics, where later ones number them.
_VERSION_LIMITS = {0: 12, 1: 12, 8: 9, 9: 9}


class _Asked(NamedTuple):
    """A request that was sent and has no response yet."""

    api: Api
    version: int
    correlation_id: int
    response: asyncio.Future[Message]


class RequestPipeline(asyncio.Protocol):
    """Requests of many callers on one socket; used inside one event loop."""

    def __init__(self, name: str, client_id: str, security: ClusterSecurity | None = None) -> None:
        self._name = name
        self._client_id = client_id
        self._caller = None if security is None else security.caller
        self._credentials = None if security is None else security.login
        self._on_throttle = None if security is None else security.on_throttle
        self._login: asyncio.TimerHandle | None = None
        self._login_again: asyncio.Task[None] | None = None
        # Held while a login is renewed; those who wait for it go on in their order.
        self._sending = asyncio.Lock()
        # Set by the last response that is still to come.
        self._answered = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._asked: deque[_Asked] = deque()
        self._received = bytearray()
        self._received_at = self._loop.time()
        self._versions = {_API_VERSIONS_KEY: 0}

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether no response is still to come."""
        return not self._asked

    @property
    def unsent_bytes(self) -> int:
        """What was written and the broker's host has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def ask(self, request: Message) -> Message:
        """Send a request and wait for its response; a caller that stops waiting disturbs nobody."""
        async with self._sending:
            response = self._send(request)
        return await self._response(response)

    async def _ask(self, request: Message) -> Message:
        """The same for a request of a login."""
        return await self._response(self._send(request))

    async def _response(self, response: asyncio.Future[Message]) -> Message:
        sent_at = self._loop.time()
        try:
            return await response
        except asyncio.CancelledError:
            if self._received_at < sent_at < self._loop.time() - STALLED_SECONDS:
                self.abort("no response in time")
            raise

    def send(self, request: Message) -> None:
        """Send a request that has no response."""
        api = api_of(type(request))
        self._write(api, self._version(api), self._next_id(), request)

    def close(self) -> None:
        """End the connection; whoever still waits gets `ConnectionLost`."""
        self.abort("the connection was closed")

    def abort(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(why)

    def _send(self, request: Message) -> "asyncio.Future[Message]":
        api = api_of(type(request))
        version = self._version(api)
        correlation_id = self._next_id()
        self._write(api, version, correlation_id, request)
        response = self._loop.create_future()
        self._asked.append(_Asked(api, version, correlation_id, response))
        return response

    def _write(self, api: Api, version: int, correlation_id: int, request: Message) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ClusterError(ErrorCode.BROKER_NOT_AVAILABLE, f"{self._name}: the connection is closed")
        try:
            frame = request_frame(
                api, RequestHeader(api.key, version, correlation_id, self._client_id), request
            )
        except ProtocolError as broken:
            raise ClusterError(ErrorCode.INVALID_REQUEST, str(broken)) from None
        transport.write(frame)

    def _version(self, api: Api) -> int:
        version = self._versions.get(api.key)
        if version is None:
            raise ClusterError(ErrorCode.UNSUPPORTED_VERSION, f"{self._name} does not serve {api.name}")
        return version

    def _next_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    async def agree_on_versions(self) -> None:
        """Ask what the broker speaks; the first request of every connection."""
        answer = await self.ask(ApiVersionsRequest())
        assert isinstance(answer, ApiVersionsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise ClusterError(answer.error_code, f"{self._name}: ApiVersions failed")
        for one in answer.api_keys:
            api = APIS.get(one.api_key)
            if api is None:
                continue
            version = min(one.max_version, api.versions[-1], _VERSION_LIMITS.get(api.key, api.versions[-1]))
            if version >= max(one.min_version, api.versions[0]):
                self._versions[api.key] = version

    async def log_in(self) -> None:
        """Say who we are, or for whom we act; SASL_AUTHENTICATION_FAILED if that is not believed."""
        if self._caller is not None:
            signed = self._caller.signed
            await self._shake_hands(DELEGATE)
            challenge = await self._authenticate(signed.statement)
            outcome = await self._authenticate(signed.proof(challenge.auth_bytes))
        elif self._credentials is not None and self._credentials.mechanism is not None:
            outcome = await self._log_in_as(self._credentials, self._credentials.mechanism)
        else:
            return
        if outcome.session_lifetime_ms:
            seconds = outcome.session_lifetime_ms / 1_000 * LOGIN_SHARE
            self._login = self._loop.call_later(seconds, self._renew_login)

    async def _log_in_as(self, credentials: ConnectionSecurity, mechanism: str) -> SaslAuthenticateResponse:
        await self._shake_hands(mechanism)
        messages = credentials.messages()
        outcome = await self._authenticate(next(messages))
        try:
            while True:
                outcome = await self._authenticate(messages.send(outcome.auth_bytes))
        except StopIteration:
            return outcome
        except LoginFailed as failed:
            raise ClusterError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failed)) from None

    async def _shake_hands(self, mechanism: str) -> None:
        agreed = await self._ask(SaslHandshakeRequest(mechanism=mechanism))
        assert isinstance(agreed, SaslHandshakeResponse)
        expect(agreed.error_code, f"{self._name} does not offer {mechanism}")

    async def _authenticate(self, content: bytes) -> SaslAuthenticateResponse:
        answer = await self._ask(SaslAuthenticateRequest(auth_bytes=content))
        assert isinstance(answer, SaslAuthenticateResponse)
        expect(answer.error_code, answer.error_message)
        return answer

    def _renew_login(self) -> None:
        if self.is_open:
            self._login_again = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        async with self._sending:
            try:
                while self._asked:
                    self._answered.clear()
                    await self._answered.wait()
                async with asyncio.timeout(LOGIN_SECONDS):
                    await self.log_in()
            except (ClusterError, TimeoutError) as error:
                self.abort(f"the login was not renewed: {error}")

    # What follows is called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("the broker closed the connection" if error is None else str(error))

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        received = self._received
        if received:
            received += data
            if len(received) < _SIZE_BYTES + int.from_bytes(received[:_SIZE_BYTES], "big"):
                if len(received) >= _SIZE_BYTES and not self._is_possible(received):
                    self.abort("the broker announced a response that is too large")
                return
            data = bytes(received)
            received.clear()
        view, start, end = memoryview(data), 0, len(data)
        while end - start >= _SIZE_BYTES:
            following = start + _SIZE_BYTES + int.from_bytes(view[start : start + _SIZE_BYTES], "big")
            if following > end:
                break
            if not self._respond(view[start + _SIZE_BYTES : following]):
                return
            start = following
        received += view[start:]
        if not self._is_possible(received):
            self.abort("the broker announced a response that is too large")

    def _is_possible(self, received: bytearray) -> bool:
        return (
            len(received) < _SIZE_BYTES or int.from_bytes(received[:_SIZE_BYTES], "big") <= RESPONSE_BYTES_MAX
        )

    def _respond(self, frame: memoryview) -> bool:
        if not self._asked:
            self.abort("the broker sent a response that nobody asked for")
            return False
        asked = self._asked.popleft()
        if not self._asked:
            self._answered.set()
        try:
            correlation_id, position = read_response_header(asked.api, asked.version, frame)
            if correlation_id != asked.correlation_id:
                raise ProtocolError(f"response {correlation_id} to request {asked.correlation_id}")
            if asked.response.done():
                return True
            response = decode_whole(asked.api.response, frame, asked.version, position)
            if self._on_throttle is not None and (wait_ms := getattr(response, "throttle_time_ms", 0)):
                self._on_throttle(wait_ms)
            asked.response.set_result(response)
        except ProtocolError as broken:
            if not asked.response.done():
                asked.response.set_exception(ConnectionLost(f"{self._name}: {broken}"))
            self.abort(str(broken))
            return False
        return True

    def _fail(self, why: str) -> None:
        if self._login is not None:
            self._login.cancel()
        asked, self._asked = self._asked, deque()
        self._answered.set()
        for one in asked:
            if not one.response.done():
                one.response.set_exception(ConnectionLost(f"{self._name}: {why}"))


async def open_pipeline(
    address: BrokerAddress, client_id: str, security: ClusterSecurity | None = None
) -> RequestPipeline:
    """Connect, agree on versions, and log in; ClusterError BROKER_NOT_AVAILABLE if there is nobody."""
    name = f"{address[0]}:{address[1]}"
    loop = asyncio.get_running_loop()
    pipeline = RequestPipeline(name, client_id, security)
    context = None if security is None else security.context_for(address[0])
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            if security is not None and security.on_connect is not None:
                connected = await _connect(address, security.on_connect)
                server_hostname = None if context is None else address[0]
                await loop.create_connection(
                    lambda: pipeline, sock=connected, ssl=context, server_hostname=server_hostname
                )
            elif context is None:
                await loop.create_connection(lambda: pipeline, *address)
            else:
                await loop.create_connection(
                    lambda: pipeline, *address, ssl=context, server_hostname=address[0]
                )
            await pipeline.agree_on_versions()
            await pipeline.log_in()
    except (OSError, ConnectionLost) as error:
        pipeline.close()
        why = "no response in time" if isinstance(error, TimeoutError) else str(error)
        raise ClusterError(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker at {name}: {why}") from None
    except BaseException:
        pipeline.close()
        raise
    return pipeline


async def _connect(address: BrokerAddress, on_connect: Callable[[int], None]) -> socket.socket:
    """A connection from a port that was told before."""
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, protocol, _, target in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        connecting = socket.socket(family, kind, protocol)
        try:
            connecting.setblocking(False)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connecting.bind(("", 0))
            on_connect(connecting.getsockname()[1])
            await loop.sock_connect(connecting, target)
        except OSError as error:
            connecting.close()
            failed = error
        except BaseException:
            connecting.close()
            raise
        else:
            return connecting
    raise failed or OSError("the name has no address")
