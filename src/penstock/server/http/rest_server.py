"""uvicorn's HTTP and WebSocket connections on a listening socket, with limits of our own.

uvicorn's own server is not used: it looks every tenth of a second whether it should end, and takes
as long to do so.

A publish that comes whole in one read, as nearly all do, is served without a task, a scope and the rest of
ASGI (`serve_soon`): that is half of what it would cost. One that does not, and every other request, goes to
the application.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from typing import Any, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from penstock.observability import log
from penstock.runtime.loop import MachineClock
from penstock.security.login_limits import network_of
from penstock.server.gateway.memory import MemoryBudget
from penstock.server.gateway.options import RestOptions
from penstock.server.http.address_places import NETWORK
from penstock.server.http.problem import problem_body
from penstock.server.http.security_headers import API_HEADERS as HEADERS
from penstock.server.http.security_headers import API_TLS_HEADERS as TLS_HEADERS

CLOSE_SECONDS = 0.5
IDLE_SECONDS = 75
LINGER_SECONDS = 1.0
HANDSHAKE_SECONDS = 10.0
REPORT_SECONDS = 10.0
SERVER = b"penstock"
# RFC 6455: a close code, and the longest reason.
TRY_AGAIN_LATER = 1013
ABNORMAL_CLOSURE = 1006
REASON_BYTES_MAX = 123
# What every connection may have of a message that is not complete.
ARRIVING_BYTES_MAX = 64 << 10
# Of WebSocket frames that are read in one turn of the loop.
FRAMES_BYTES_MAX = 8 << 10
# Requests that wait behind another one of their connection.
PIPELINED_MAX = 1_000
PUBLISH = b"/publish"
# In the state of a connection: what a client has shown of itself.
CERTIFICATE = "certificate"
OK = 200
# Nobody waits for it: uvicorn sets one when a connection ends.
_NOBODY_WAITS = asyncio.Event()


class SoonServer(Protocol):
    """What serves requests that came whole, as far as it can."""

    def serve_soon(
        self, url: bytes, content: bytes, respond: Callable[[int, bytes], None], origin: "SoonOrigin"
    ) -> bool:
        """Call `respond` later with the status and the JSON; False if the application must serve it."""


class SoonOrigin(Protocol):
    """Where a request came from, as uvicorn's connection knows it."""

    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    app_state: dict[str, Any]


class _SoonCycle:
    """A request that is served soon, as uvicorn's connection sees it."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    more_body = False
    message_event = _NOBODY_WAITS

    def __init__(self) -> None:
        self.keep_alive = True
        self.disconnected = self.response_complete = False


class _SoonRequests:
    """How many requests are being served outside of tasks."""

    def __init__(self, server: SoonServer) -> None:
        self.serve = server.serve_soon
        self.count = 0
        self.ended = asyncio.Event()

    def end_one(self) -> None:
        self.count -= 1
        if not self.count:
            self.ended.set()

    def begin_one(self) -> None:
        self.count += 1
        if self.count == 1:
            self.ended.clear()


class AddressConnections:
    """How many connections each address has."""

    def __init__(self) -> None:
        self._by_network: Counter[str] = Counter()
        self._report_at = 0.0

    def add(self, host: str) -> int:
        """Count one more; returns how many there are."""
        network = network_of(host)
        self._by_network[network] += 1
        return self._by_network[network]

    def remove(self, host: str) -> None:
        network = network_of(host)
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]

    def report(self, host: str, connections_max: int, now: float) -> None:
        """Say that an address has too many, but not each time."""
        if now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            log.warning("rest.too_many_connections", host=host, connections_max=connections_max)


class CountedConnection(asyncio.Protocol):
    """A connection that is counted for its address until it ends, or becomes another one."""

    client: tuple[str, int] | None
    addresses: AddressConnections
    app_state: dict[str, Any]
    _counted: str | None = None

    def count(self) -> int:
        self._counted = self.client[0] if self.client else ""
        # For the application, which finds it in the state of each request's scope.
        self.app_state[NETWORK] = network_of(self._counted)
        return self.addresses.add(self._counted)

    def count_no_more(self) -> None:
        counted, self._counted = self._counted, None
        if counted is not None:
            self.addresses.remove(counted)


class SlowReader(asyncio.Protocol):
    """A connection whose client leaves responses unread: their bytes count, and it has little time."""

    options: RestOptions
    memory: MemoryBudget
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _write_deadline: asyncio.TimerHandle | None = None
    _unread_bytes = 0

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.options.response_timeout_ms / 1_000
        self._write_deadline = self.loop.call_later(seconds, self.transport.abort)
        self._unread_bytes = self.transport.get_write_buffer_size()
        self.memory.add(self._unread_bytes)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_waiting()

    def _end_waiting(self) -> None:
        self.memory.give_back(self._unread_bytes)
        self._unread_bytes = 0
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None


class RestConnection(CountedConnection, SlowReader, HttpToolsProtocol):
    """One HTTP connection: counts the bytes of a head, and ends clients that are slow to write or to read."""

    _is_in_head = True
    _unparsed_bytes = 0
    _has_message_ended = False
    # Nothing more is read; a request that was refused is told so when those before it have their responses.
    _is_ending = False
    _refusal: tuple[int, str, str] | None = None
    _linger: asyncio.TimerHandle | None = None
    _head_deadline: asyncio.TimerHandle | None = None
    soon: _SoonRequests | None = None
    # The lines that every response has.
    usual_headers = b""
    # The parts of a body so far, of a request that may be served soon.
    _parts: list[bytes] | None = None
    _idle: asyncio.TimerHandle | None = None
    _responded_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        of_address, address_max = self.count(), self.options.address_connections_max
        encrypted = transport.get_extra_info("ssl_object")
        if encrypted is not None:
            self.app_state[CERTIFICATE] = encrypted.getpeercert(binary_form=True)
        if len(self.connections) > self.options.connections_max:
            self.refuse(503, "Too many connections", f"there are {self.options.connections_max} already")
            return
        if of_address > address_max:
            self.addresses.report(str(self._counted), address_max, self.loop.time())
            self.refuse(503, "Too many connections", f"your address has {address_max} already")
            return
        self._await_head()

    def handle_websocket_upgrade(self) -> None:
        # It is counted as what it becomes.
        self.count_no_more()
        super().handle_websocket_upgrade()

    def _await_head(self) -> None:
        """From now on there is little time for the rest of a head."""
        if self._head_deadline is None:
            seconds = self.options.body_timeout_ms / 1_000
            self._head_deadline = self.loop.call_later(seconds, self._head_overdue)

    def _head_overdue(self) -> None:
        self._head_deadline = None
        under_way: Any = self.cycle
        if under_way is None or under_way.response_complete:
            self.refuse(408, "Request timeout", "the head of the request did not arrive in time")

    def _has_head(self) -> None:
        self._is_in_head = False
        self._unparsed_bytes = 0
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.count_no_more()
        self._has_head()
        for timer in (self._linger, self._idle):
            if timer is not None:
                timer.cancel()
        # Whoever waits for the client's end hears of it before those who wait to write: these know then.
        super().connection_lost(exc)
        self.resume_writing()

    def _takes_data(self) -> bool:
        return not self._is_ending and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if not self._takes_data():
            return
        self._has_message_ended = False
        super().data_received(data)
        if self._parts is not None and self._takes_data():
            self._serve_as_any()
        # Nearly always a head comes at once. One that does not end is kept by the parser, which tells nobody.
        if self._is_in_head and self._takes_data():
            self._await_head()
            # Where a head begins behind another request, the parser does not say at which byte.
            self._unparsed_bytes += self._head_bytes if self._has_message_ended else len(data)
            if self._unparsed_bytes > self.options.head_bytes_max:
                self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._unparsed_bytes = 0

    def on_body(self, body: bytes) -> None:
        if self._parts is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        self._has_message_ended = True
        if self._parts is None or not self._serve_soon(b"".join(self._parts)):
            if self._parts is not None:
                self._serve_as_any()
            super().on_message_complete()

    def _may_be_served_soon(self) -> bool:
        """Whether this is a publish, and no other request is under way here."""
        under_way: Any = self.cycle
        return (
            self.url.endswith(PUBLISH)
            and self.soon is not None
            and (under_way is None or under_way.response_complete)
            and not self.flow.write_paused
            and not self.expect_100_continue
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
        )

    def _serve_soon(self, content: bytes) -> bool:
        assert self.soon is not None
        cycle = _SoonCycle()
        if not self.soon.serve(self.url, content, partial(self._respond, cycle), self):
            return False
        self.soon.begin_one()
        self._parts = None
        self.cycle = cycle  # type: ignore[assignment]  # has what is used of it here
        return True

    def _serve_as_any(self) -> None:
        """Give a request to the application after all, with as much of its body as there is."""
        parts, self._parts = self._parts, None
        super().on_headers_complete()
        for part in parts or ():
            super().on_body(part)

    def _respond(self, cycle: _SoonCycle, status: int, body: bytes) -> None:
        assert self.soon is not None
        self.soon.end_one()
        if cycle.disconnected:
            return
        head = b"%bdate: %b\r\n%bcontent-length: %d\r\ncontent-type: application/%b\r\n%b\r\n" % (
            STATUS_LINE[status],
            self.server_state.default_headers[0][1],
            self.usual_headers,
            len(body),
            b"json" if status == OK else b"problem+json",
            b"" if cycle.keep_alive else b"connection: close\r\n",
        )
        cycle.response_complete = True
        self.transport.write(head + body)
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        elif self._refusal is not None:
            self._end_with(*self._refusal)
        elif self.cycle.more_body:
            self._end_reading()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()
            self._responded_at = self.loop.time()
            if self._idle is None:
                self._idle = self.loop.call_later(IDLE_SECONDS, self._end_if_idle)

    def _end_if_idle(self) -> None:
        """End a connection that has not been used for a while. One timer sees to it, not one per request."""
        under_way: Any = self.cycle
        left = self._responded_at + IDLE_SECONDS - self.loop.time()
        if not under_way.response_complete or self._head_deadline is not None:
            left = IDLE_SECONDS
        if left > 0:
            self._idle = self.loop.call_later(left, self._end_if_idle)
        elif not self.transport.is_closing():
            self.transport.close()

    def _end_reading(self) -> None:
        """End a connection whose client still sends a body that nobody reads.

        It has a moment to read the response, which a reset would take from it.
        """
        self._is_ending = True
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._linger = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    @property
    def _head_bytes(self) -> int:
        return len(self.url) + sum([len(name) + len(value) for name, value in self.headers])

    def _refuse_head(self) -> None:
        self.refuse(431, "Request head too large", f"a head may have {self.options.head_bytes_max} bytes")

    def on_headers_complete(self) -> None:
        self._has_head()
        if self._head_bytes > self.options.head_bytes_max:
            self._refuse_head()
            # Ends the parser, and with it what it would do with the rest.
            raise ValueError("the head is too large")
        if len(self.pipeline) >= PIPELINED_MAX:
            self.refuse(503, "Too many requests at once", f"{PIPELINED_MAX} wait in this connection already")
            raise ValueError("too many requests wait")
        if self._may_be_served_soon():
            self._parts = []
        else:
            super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._takes_data():
            self.refuse(400, "Invalid request", msg)

    def refuse(self, status: int, title: str, detail: str) -> None:
        """Respond outside the application, behind the requests before, and end the connection."""
        before: Any = self.cycle
        if before is None or before.response_complete or (before.more_body and not self.pipeline):
            self._end_with(status, title, detail)
        elif self._refusal is None:
            self._is_ending = True
            self._refusal = status, title, detail

    def _end_with(self, status: int, title: str, detail: str) -> None:
        body = problem_body(status, title, detail)
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
        )
        self.transport.write(head.encode("ascii") + self.usual_headers + b"\r\n" + body)
        self.transport.close()


class RestWebSocket(CountedConnection, SlowReader, WebSocketsSansIOProtocol):
    """One WebSocket connection: ends clients that are slow to read, and those it has no room for."""

    # Of a message that is not complete.
    _arriving_bytes = 0
    # What has come and was not looked at.
    _unread = b""
    _next_read: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.count()

    def data_received(self, data: bytes) -> None:
        self.memory.add(len(data))
        if self._unread:
            self._unread += data
            self._read_on()
        elif len(data) <= FRAMES_BYTES_MAX and not self.read_paused:
            self._read(data)
        else:
            self._unread = data
            self._read_some()

    def _read_some(self) -> None:
        """Read a part of what has come, and the next when the loop has turned: tiny frames are much work.

        A part may hold messages that unpack to much more, so while the application has some the rest waits.
        """
        self._next_read = None
        if not self.read_paused and not self.transport.is_closing():
            part, self._unread = self._unread[:FRAMES_BYTES_MAX], self._unread[FRAMES_BYTES_MAX:]
            self._read(part)
        self._read_on()

    def _read_on(self) -> None:
        """While something waits to be read, nothing more is taken from the client."""
        if self.transport.is_closing():
            self._forget_unread()
        elif self._unread:
            self.transport.pause_reading()
            if not self.read_paused and self._next_read is None:
                self._next_read = self.loop.call_soon(self._read_some)
        elif not self.read_paused:
            self.transport.resume_reading()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._unread:
            self._read_on()
        return message

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self._unread:
            # After the last one nobody receives any more, but the client's goodbye may be there.
            self._read_on()

    def _forget_unread(self) -> None:
        self.memory.give_back(len(self._unread))
        self._unread = b""

    def _read(self, data: bytes) -> None:
        self._arriving_bytes += len(data)
        super().data_received(data)
        if self._arriving_bytes > ARRIVING_BYTES_MAX and self.memory.is_used_up and not self.close_sent:
            self.conn.fail(TRY_AGAIN_LATER, str(self.memory.refusal())[:REASON_BYTES_MAX])
            self.handle_parser_exception()

    def handle_text(self, event: Frame) -> None:
        super().handle_text(event)
        # The parser keeps the last frame until the next one comes: of ten megabytes, perhaps, for ever.
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        super().handle_cont(event)
        event.data = b""

    def send_receive_event_to_app(self) -> None:
        # From here on the application counts it.
        self._arrived()
        super().send_receive_event_to_app()

    def _arrived(self) -> None:
        self.memory.give_back(self._arriving_bytes)
        self._arriving_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.count_no_more()
        self._arrived()
        self._forget_unread()
        self._end_waiting()
        if self.handshake_complete and self.conn.close_rcvd is None:
            # uvicorn says 1005 here, as it does of a client that said goodbye without a code.
            self.queue.put_nowait({"type": "websocket.disconnect", "code": ABNORMAL_CLOSURE})
        super().connection_lost(exc)
        # What has come of a message that is not complete would stay until the next collection.
        self.conn.reader.discard()
        self.frames = []


def is_failure(record: logging.LogRecord) -> bool:
    """Whether something failed in us: a request that ends because the server does is no failure."""
    error = None if record.exc_info is None else record.exc_info[1]
    return error is not None and not isinstance(error, asyncio.CancelledError)


class RestServer:
    """Serves an ASGI application on a socket that listens already."""

    def __init__(
        self,
        app: Any,
        options: RestOptions,
        soon: SoonServer | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._soon = None if soon is None else _SoonRequests(soon)
        shared = {
            "options": options,
            "memory": memory or MemoryBudget(options.in_flight_bytes_max),
            "addresses": AddressConnections(),
        }
        self._http_class: Any = type("_RestConnection", (RestConnection,), {**shared, "soon": self._soon})
        self._config = Config(
            app,
            http=self._http_class,
            ws=type("_RestWebSocket", (RestWebSocket,), shared),
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            ws_max_size=options.body_bytes_max,
            backlog=1024,
        )
        # What clients do wrong is said to them, and is no line of the node's log; what fails in us is.
        logging.getLogger("uvicorn.error").addFilter(is_failure)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._date: asyncio.TimerHandle | None = None
        self._listening: socket.socket | None = None
        self._headers: list[tuple[bytes, bytes]] = []

    async def open(self, listening: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Accept connections from now on, with TLS if there is a context."""
        usual = (("Server", SERVER.decode()), *(HEADERS if context is None else TLS_HEADERS))
        self._headers = [(name.lower().encode(), value.encode()) for name, value in usual]
        self._http_class.usual_headers = b"".join(b"%b: %b\r\n" % each for each in self._headers)
        self._config.load()
        self._set_date()
        self._listening = listening
        await self.replace_context(context)

    async def replace_context(self, context: ssl.SSLContext | None) -> None:
        """Give new connections another certificate. Those that exist stay, and none is refused meanwhile."""
        assert self._listening is not None
        before = self._server
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection,
            sock=self._listening.dup(),
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_SECONDS,
        )
        if before is not None:
            before.close()

    def _connection(self) -> asyncio.Protocol:
        http_class: Any = self._config.http_protocol_class
        connection: asyncio.Protocol = http_class(config=self._config, server_state=self._state, app_state={})
        return connection

    def _set_date(self) -> None:
        """Keep the Date header true; once a second is as exact as it gets."""
        date = formatdate(MachineClock().wall() / 1_000, usegmt=True).encode()
        # In place: every connection has this list.
        self._state.default_headers[:] = [(b"date", date), *self._headers]
        self._date = asyncio.get_running_loop().call_later(1.0, self._set_date)

    async def close(self) -> None:
        """Accept nothing more, let requests end that are under way, and close every connection."""
        if self._server is not None and self._listening is not None:
            self._server.close()
            self._listening.close()
        if self._date is not None:
            self._date.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, late = await asyncio.wait(self._state.tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
        if self._soon is not None and self._soon.count:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._soon.ended.wait(), CLOSE_SECONDS)
