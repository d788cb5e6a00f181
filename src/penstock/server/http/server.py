"""The HTTP server and its connections."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime import Address, Runtime, Timer
from penstock.runtime.tcp import (
    Acceptor,
    ConnectionQuotaLimits,
    ConnectionQuotas,
    SocketTcpConnection,
    TcpConnection,
)

TEXT = "text/plain; charset=utf-8"
END_OF_HEAD = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
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


class HttpRequest(NamedTuple):
    """A request with a body; `path` is what follows the resource's prefix, not decoded."""

    path: str
    body: bytes


Page: TypeAlias = Callable[[], HttpResponse]
# Takes a PUT, and responds now or later, once.
Resource: TypeAlias = Callable[[HttpRequest, Callable[[HttpResponse], None]], None]
NO_RESOURCES: Mapping[str, Resource] = {}
PUT = b"PUT "


def respond(head: bytes, pages: Mapping[str, Page], other: Page | None = None) -> bytes:
    """The whole response to a request whose head is complete; `other` is for what is no page."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return response(HttpResponse(400, b"this is not HTTP\n"))
    method, target = words[0], words[1].split(b"?", 1)[0].decode("latin-1")
    if other is not None and (method not in (b"GET", b"HEAD") or target not in pages):
        return response(other(), with_body=method != b"HEAD")
    if method not in (b"GET", b"HEAD"):
        return response(HttpResponse(405, b"only GET and HEAD are supported\n"))
    page = pages.get(target)
    if page is None:
        known = ", ".join(sorted(pages))
        return response(HttpResponse(404, f"there is no such page; there are {known}\n".encode()))
    return response(page(), with_body=method == b"GET")


def response(answer: HttpResponse, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (answer.body if with_body else b"")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one HTTP server."""

    connections_max: int = 100
    head_bytes_max: int = 8_192
    body_bytes_max: int = 512 << 10
    patience_ms: int = 10_000


class HttpServer:
    """Serves pages at one address, on the node's loop."""

    def __init__(
        self,
        runtime: Runtime,
        pages: Mapping[str, Page],
        limits: HttpLimits | None = None,
        resources: Mapping[str, Resource] = NO_RESOURCES,
        other: Page | None = None,
    ) -> None:
        """`resources` by the prefix of their paths; `other` is served for everything else."""
        self._runtime = runtime
        self._pages = pages
        self._resources = resources
        self._other = other
        self.limits = limits or HttpLimits()
        self._acceptor: Acceptor | None = None

    def open(self, loop: asyncio.AbstractEventLoop, address: Address) -> Address:
        """Listen; returns the address with the actual port."""
        quotas = ConnectionQuotas(ConnectionQuotaLimits(self.limits.connections_max))
        self._acceptor = Acceptor(loop, address, self._welcome, quotas=quotas)
        return self._acceptor.address

    def _welcome(self, pipe: SocketTcpConnection) -> "HttpConnection":
        deadline = Instant(self._runtime.clock.now() + self.limits.patience_ms * MILLISECOND)
        return HttpConnection(pipe, self, self._runtime.timers.at(deadline, pipe.close))

    def respond(self, head: bytes) -> bytes:
        return respond(head, self._pages, self._other)

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
            self._send(response(HttpResponse(431, b"the head of this request is too large\n")))

    def _begin(self, head: bytes, rest: bytes) -> None:
        found = self._listener.resource_of(head)
        if found is None:
            self._send(self._listener.respond(head))
            return
        length = _content_length(head)
        if length is None:
            self._send(response(HttpResponse(411, b"a request with a body needs its Content-Length\n")))
        elif length > self._listener.limits.body_bytes_max:
            detail = f"the body may have {self._listener.limits.body_bytes_max} bytes\n"
            self._send(response(HttpResponse(413, detail.encode())))
        else:
            self._body = found
            self._buffer = memoryview(bytearray(length))
            self._have = min(length, len(rest))
            self._buffer[: self._have] = rest[:length]
            self._check_body()

    def _check_body(self) -> None:
        if self._have == len(self._buffer) and self._body is not None:
            self._tcp.pause()
            resource, path = self._body
            resource(HttpRequest(path, bytes(self._buffer)), self._respond)

    def _respond(self, answer: HttpResponse) -> None:
        if not self._closed:
            self._send(response(answer))

    def _send(self, content: bytes) -> None:
        self._answered = True
        self._tcp.pause()
        self._tcp.write([content])
        if self._tcp.pending_bytes == 0:
            self._tcp.close()

    def drained(self) -> None:
        if self._answered:
            self._tcp.close()

    def eof_received(self) -> bool:
        # It gets its response, if it still reads; `patience` is the limit.
        return True

    def closed(self) -> None:
        self._closed = True
        self._patience.cancel()


def _content_length(head: bytes) -> int | None:
    """What the head says, if it is a number of few enough digits to be one."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) < 16 else None
    return None
