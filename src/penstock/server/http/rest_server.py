"""uvicorn's HTTP and WebSocket connections on a listening socket, with limits of our own.

uvicorn's own server is not used: it looks every tenth of a second whether it should end, and takes
as long to do so.
"""

import asyncio
import socket
from email.utils import formatdate
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from penstock.runtime.loop import MachineClock
from penstock.server.gateway.options import RestOptions
from penstock.server.http.problem import problem_body

CLOSE_SECONDS = 0.5
IDLE_SECONDS = 75
LINGER_SECONDS = 1.0
SERVER = b"penstock"


class RestConnection(HttpToolsProtocol):
    """One HTTP connection: counts the bytes of a head, and ends clients that are slow to write or to read."""

    options: RestOptions
    _is_in_head = True
    _unparsed_bytes = 0
    _has_message_ended = False
    # Nothing more is read; a request that was refused is told so when those before it have their responses.
    _is_ending = False
    _refusal: tuple[int, str, str] | None = None
    _linger: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _head_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.options.connections_max:
            self.refuse(503, "Too many connections", f"there are {self.options.connections_max} already")
            return
        self._await_head()

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

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.options.response_timeout_ms / 1_000
        self._write_deadline = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_head()
        if self._linger is not None:
            self._linger.cancel()
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

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._has_message_ended = True

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        elif self._refusal is not None:
            self._end_with(*self._refusal)
        elif self.cycle.more_body:
            self._end_reading()
        else:
            super().on_response_complete()

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
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


class RestWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection: ends clients that are slow to read."""

    options: RestOptions
    _write_deadline: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.options.response_timeout_ms / 1_000
        self._write_deadline = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._can_write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._can_write()
        super().connection_lost(exc)

    def _can_write(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None


class RestServer:
    """Serves an ASGI application on a socket that listens already."""

    def __init__(self, app: Any, options: RestOptions) -> None:
        self._config = Config(
            app,
            http=type("_RestConnection", (RestConnection,), {"options": options}),
            ws=type("_RestWebSocket", (RestWebSocket,), {"options": options}),
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
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._date: asyncio.TimerHandle | None = None

    async def open(self, listening: socket.socket) -> None:
        """Accept connections from now on."""
        self._config.load()
        self._set_date()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=listening)

    def _connection(self) -> asyncio.Protocol:
        http_class: Any = self._config.http_protocol_class
        connection: asyncio.Protocol = http_class(config=self._config, server_state=self._state, app_state={})
        return connection

    def _set_date(self) -> None:
        """Keep the Date header true; once a second is as exact as it gets."""
        date = formatdate(MachineClock().wall() / 1_000, usegmt=True).encode()
        # In place: every connection has this list.
        self._state.default_headers[:] = [(b"date", date), (b"server", SERVER)]
        self._date = asyncio.get_running_loop().call_later(1.0, self._set_date)

    async def close(self) -> None:
        """Accept nothing more, let requests end that are under way, and close every connection."""
        if self._server is not None:
            self._server.close()
        if self._date is not None:
            self._date.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, late = await asyncio.wait(self._state.tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
