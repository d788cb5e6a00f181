"""The HTTP server of a node and its connections.

Where there is a gate, it is asked who is calling before anything is served but the open pages: health and
readiness. Whoever may describe the cluster sees the other pages, and more on the open ones than strangers do;
resources judge for themselves.

One address has half of the connections. When all are in use, or those of one address, a new one takes the
place of the oldest that waits for its client: for the rest of its request, or to read the response.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime import Address, Runtime, Timer
from penstock.runtime.loop_watch import HELD_NS, LoopWatch
from penstock.runtime.tcp import (
    Acceptor,
    ConnectionQuotaLimits,
    ConnectionQuotas,
    SocketTcpConnection,
    TcpConnection,
    TcpProtocol,
)
from penstock.runtime.tls import TlsConnection, TlsSessions
from penstock.security import AclOperation
from penstock.security import Resource as SecuredResource
from penstock.server.http.security_headers import CHALLENGE, HEADERS, TLS_HEADERS

TEXT = "text/plain; charset=utf-8"
END_OF_HEAD = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class HttpResponse(NamedTuple):
    """A page: status, body and content type."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class HttpRequest(NamedTuple):
    """A request with a body; `path` is what follows the resource's prefix, not decoded.

    `caller` is whoever asks; None where everyone may do everything.
    """

    path: str
    body: bytes
    caller: "HttpCaller | None" = None


class HttpCaller(Protocol):
    """Somebody who was identified."""

    def may(self, operation: AclOperation, resource: SecuredResource) -> bool: ...

    def may_see_pages(self) -> bool:
        """Whether the pages of the node are for this caller."""

    def may_see_names(self) -> bool:
        """Whether a page that is for everyone says more to this caller than to strangers."""


class HttpGate(Protocol):
    """Knows who is calling."""

    def admit(
        self,
        headers: "HttpHeaders",
        host: str,
        certificate: bytes | None,
        done: Callable[["HttpCaller | HttpResponse"], None],
    ) -> None:
        """Call `done` with the caller, or with the response to one that is nobody."""

    def is_named(self, headers: "HttpHeaders", certificate: bytes | None) -> bool:
        """Whether a request says who is calling, rightly or not."""


class HttpTls(Protocol):
    """The certificate that new connections are shown."""

    @property
    def current(self) -> SSLContext: ...


# As they came: names in lower case, one pair for each line.
HttpHeaders: TypeAlias = list[tuple[str, str]]
# Calls back with a page that takes a while to make.
LateResponse: TypeAlias = Callable[[Callable[[HttpResponse], None]], None]
Page: TypeAlias = Callable[[], HttpResponse | LateResponse]
# Takes a PUT, and responds now or later, once.
Resource: TypeAlias = Callable[[HttpRequest, Callable[[HttpResponse], None]], None]
# A path is named by its beginning.
NAMED_CHARS_MAX = 100
A = TypeVar("A")
NO_RESOURCES: Mapping[str, Resource] = {}
NO_PAGES: Mapping[str, Page] = {}
PUT = b"PUT "
OPEN_PAGES = frozenset({"/health", "/ready"})
# Resources that know by something else who is calling.
PRIVATE_PREFIX = "/v1/gateway/"
NOT_IDENTIFIED = HttpResponse(
    401, b"who is calling? see WWW-Authenticate\n", TEXT, (("WWW-Authenticate", CHALLENGE),)
)
NOT_ALLOWED = HttpResponse(403, b"this needs Describe on the cluster\n")


def respond(head: bytes, pages: Mapping[str, Page], other: Page | None = None) -> HttpResponse | LateResponse:
    """The response to a request whose head is complete; `other` is for what is no page."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return HttpResponse(400, b"this is not HTTP\n")
    method, target = words[0], _target(head)
    if other is not None and (method not in (b"GET", b"HEAD") or target not in pages):
        return other()
    if method not in (b"GET", b"HEAD"):
        return HttpResponse(405, b"only GET and HEAD are supported\n")
    page = pages.get(target)
    if page is None:
        known = ", ".join(sorted(pages))
        return HttpResponse(404, f"there is no such page; there are {known}\n".encode())
    return page()


def head_of(answer: HttpResponse, *, is_encrypted: bool = False) -> bytes:
    """What is sent before the body."""
    extra = (*answer.headers, *(TLS_HEADERS if is_encrypted else HEADERS))
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in extra)
        + "Connection: close\r\n\r\n"
    )
    return head.encode("ascii")


def _target(head: bytes) -> str:
    words = head.split(b"\r\n", 1)[0].split(b" ")
    return words[1].split(b"?", 1)[0].decode("latin-1") if len(words) == 3 else ""


def headers_of(head: bytes) -> HttpHeaders:
    """The header lines of a request."""
    lines = [line.decode("latin-1").partition(":") for line in head.split(b"\r\n")[1:]]
    return [(name.strip().lower(), value.strip()) for name, _, value in lines]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one HTTP server."""

    connections_max: int = 100
    address_connections_max: int = 50
    head_bytes_max: int = 8_192
    body_bytes_max: int = 512 << 10
    patience_ms: int = 10_000


class HttpServer:
    """Serves pages at one address, on the node's loop."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a server has
        self,
        runtime: Runtime,
        pages: Mapping[str, Page],
        limits: HttpLimits | None = None,
        resources: Mapping[str, Resource] = NO_RESOURCES,
        other: Page | None = None,
        gate: HttpGate | None = None,
        tls: HttpTls | None = None,
        open_pages: Mapping[str, Page] = NO_PAGES,
    ) -> None:
        """`resources` by the prefix of their paths; `other` is served for everything else.

        Without a `gate` everyone is served; with one, strangers are served `open_pages`, in place of the
        pages of these paths.
        """
        self.gate = gate
        self.tls = tls
        self._tls_sessions = TlsSessions(runtime.clock, runtime.timers)
        self._runtime = runtime
        self._pages = pages
        self._open_pages = open_pages
        self._resources = resources
        self._other = other
        self.limits = limits or HttpLimits()
        self._acceptor: Acceptor | None = None
        # Connections that wait for their clients, the oldest first.
        self._idle: dict[TcpConnection, None] = {}
        self._watch = LoopWatch()

    def open(self, loop: asyncio.AbstractEventLoop, address: Address) -> Address:
        """Listen; returns the address with the actual port."""
        limits = self.limits
        quotas = ConnectionQuotas(
            ConnectionQuotaLimits(limits.connections_max, limits.address_connections_max)
        )
        quotas.make_room = self._close_idle
        self._acceptor = Acceptor(loop, address, self._welcome, quotas=quotas)
        return self._acceptor.address

    def _welcome(self, pipe: SocketTcpConnection) -> TcpProtocol:
        if self.tls is None:
            self.await_client(pipe)
            return self._serve(pipe)
        encrypted = TlsConnection(pipe, self.tls.current, self._serve, self._tls_sessions)
        encrypted.on_closed = partial(self.await_no_more, encrypted)
        self.await_client(encrypted)
        return encrypted

    def await_client(self, connection: TcpConnection) -> None:
        """It is its client's turn to send or to read: from now on the connection may have to give way."""
        self._idle[connection] = None

    def await_no_more(self, connection: TcpConnection) -> None:
        """It is the server's turn, or the connection has ended."""
        self._idle.pop(connection, None)

    def _close_idle(self, host: str | None) -> None:
        """Close the oldest connection that waits for its client, of this address if there is one."""
        for connection in self._idle:
            if host is None or connection.peer.rpartition(":")[0] == host:
                connection.close()
                return

    def _serve(self, pipe: TcpConnection) -> "HttpConnection":
        return HttpConnection(pipe, self, self._after_ms(self.limits.patience_ms, pipe.close))

    def _after_ms(self, delay_ms: int, act: Callable[[], None]) -> Timer:
        deadline = Instant(self._runtime.clock.now() + delay_ms * MILLISECOND)
        return self._runtime.timers.at(deadline, act)

    def respond(self, head: bytes, *, is_stranger: bool = False) -> HttpResponse | LateResponse:
        pages = self._open_pages if is_stranger else self._pages
        return self.watched(_target(head), lambda: respond(head, pages, self._other))

    def watched(self, path: str, act: Callable[[], A]) -> A:
        """Do something for a request; it is named if it holds the loop."""
        now = self._runtime.clock.now
        began_ns = now()
        outcome = act()
        ended_ns = now()
        if ended_ns - began_ns > HELD_NS:
            self._watch.note(path[:NAMED_CHARS_MAX], ended_ns - began_ns, ended_ns)
        return outcome

    def resource_of(self, head: bytes) -> tuple[Resource, str] | None:
        """The resource that a PUT is for, and the rest of its path."""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        target = words[1].split(b"?", 1)[0].decode("latin-1") if head.startswith(PUT) else ""
        for prefix, resource in self._resources.items():
            if target.startswith(prefix):
                return resource, target[len(prefix) :]
        return None

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._acceptor is not None
        return self._acceptor.address

    @property
    def descriptor(self) -> int:
        """The listening socket."""
        assert self._acceptor is not None
        return self._acceptor.descriptor

    def pause(self) -> None:
        """Accept no more: another process serves what comes."""
        if self._acceptor is not None:
            self._acceptor.pause()

    def resume(self) -> None:
        if self._acceptor is not None:
            self._acceptor.resume()

    def close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()


class HttpConnection:
    """One request, one response."""

    def __init__(self, pipe: TcpConnection, door: HttpServer, patience: Timer) -> None:
        self._tcp = pipe
        self._listener = door
        self._patience = patience
        self._buffer = memoryview(bytearray(door.limits.head_bytes_max))
        self._have = 0
        # Takes the body, once the head is there and says that one follows.
        self._body: tuple[Resource, str] | None = None
        self._answered = self._closed = False
        self._caller: HttpCaller | None = None
        self._with_body = True

    def get_buffer(self) -> memoryview:
        return self._buffer[self._have :]

    def buffer_updated(self, count: int) -> None:
        self._have += count
        if self._body is not None:
            self._check_body()
            return
        head, end, rest = bytes(self._buffer[: self._have]).partition(END_OF_HEAD)
        if end:
            self._begin(head, rest)
        elif self._have == len(self._buffer):
            self._send(HttpResponse(431, b"the head of this request is too large\n"))

    def _begin(self, head: bytes, rest: bytes) -> None:
        self._with_body = not head.startswith(b"HEAD ")
        gate, target = self._listener.gate, _target(head)
        if gate is None or target.startswith(PRIVATE_PREFIX):
            self._serve(head, rest)
            return
        headers, is_open = headers_of(head), target in OPEN_PAGES
        certificate = self._tcp.certificate if isinstance(self._tcp, TlsConnection) else None
        if is_open and not gate.is_named(headers, certificate):
            self._serve_page(head, is_stranger=True)
            return
        # Nothing more is read until it is known who is calling.
        self._tcp.pause()

        def admitted(outcome: HttpCaller | HttpResponse) -> None:
            if self._closed or self._answered:
                return
            if is_open:
                may_see_names = not isinstance(outcome, HttpResponse) and outcome.may_see_names()
                self._serve_page(head, is_stranger=not may_see_names)
                return
            if isinstance(outcome, HttpResponse):
                self._send(outcome)
                return
            self._caller = outcome
            if self._listener.resource_of(head) is None and not outcome.may_see_pages():
                self._send(NOT_ALLOWED)
                return
            self._tcp.resume()
            self._serve(head, rest)

        gate.admit(headers, self._tcp.peer.rpartition(":")[0], certificate, admitted)

    def _serve(self, head: bytes, rest: bytes) -> None:
        found = self._listener.resource_of(head)
        if found is None:
            self._serve_page(head)
            return
        length = _content_length(head)
        if length is None:
            self._send(HttpResponse(411, b"a request with a body needs its Content-Length\n"))
        elif length > self._listener.limits.body_bytes_max:
            detail = f"the body may have {self._listener.limits.body_bytes_max} bytes\n"
            self._send(HttpResponse(413, detail.encode()))
        else:
            self._body = found
            self._buffer = memoryview(bytearray(length))
            self._have = min(length, len(rest))
            self._buffer[: self._have] = rest[:length]
            self._check_body()

    def _serve_page(self, head: bytes, *, is_stranger: bool = False) -> None:
        answer = self._listener.respond(head, is_stranger=is_stranger)
        if isinstance(answer, HttpResponse):
            self._send(answer)
        else:
            self._tcp.pause()
            self._listener.await_no_more(self._tcp)
            answer(self._respond)

    def _check_body(self) -> None:
        if self._have == len(self._buffer) and self._body is not None:
            self._tcp.pause()
            self._listener.await_no_more(self._tcp)
            resource, path = self._body
            request = HttpRequest(path, bytes(self._buffer), self._caller)
            self._listener.watched(path, lambda: resource(request, self._respond))

    def _respond(self, answer: HttpResponse) -> None:
        if not self._closed:
            self._send(answer)

    def _send(self, answer: HttpResponse) -> None:
        self._answered = True
        self._tcp.pause()
        is_encrypted = isinstance(self._tcp, TlsConnection)
        head = head_of(answer, is_encrypted=is_encrypted)
        # Not joined: many may be sent the same large page.
        self._tcp.write([head, answer.body] if self._with_body and answer.body else [head])
        if self._tcp.pending_bytes == 0:
            self._tcp.close()
        else:
            self._listener.await_client(self._tcp)

    def drained(self) -> None:
        if self._answered:
            self._tcp.close()

    def eof_received(self) -> bool:
        # It gets its response, if it still reads; `patience` is the limit.
        return True

    def closed(self) -> None:
        self._closed = True
        self._patience.cancel()
        self._listener.await_no_more(self._tcp)


def _content_length(head: bytes) -> int | None:
    """What the head says, if it is a number of few enough digits to be one."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) < 16 else None
    return None
