"""The HTTP server and its connections."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime import Address, Runtime, Timer
from penstock.runtime.tcp import Acceptor, AcceptorOptions, SocketTcpConnection, TcpConnection

TEXT = "text/plain; charset=utf-8"
END_OF_HEAD = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class HttpResponse(NamedTuple):
    """A page: status, body and content type."""

    status: int
    body: bytes
    content_type: str = TEXT


Page: TypeAlias = Callable[[], HttpResponse]


def respond(head: bytes, pages: Mapping[str, Page]) -> bytes:
    """The whole response to a request whose head is complete."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return response(HttpResponse(400, b"this is not HTTP\n"))
    method, target = words[0], words[1].split(b"?", 1)[0].decode("latin-1")
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
    patience_ms: int = 10_000


class HttpServer:
    """Serves pages at one address, on the node's loop."""

    def __init__(self, runtime: Runtime, pages: Mapping[str, Page], limits: HttpLimits | None = None) -> None:
        self._runtime = runtime
        self._pages = pages
        self.limits = limits or HttpLimits()
        self._acceptor: Acceptor | None = None

    def open(self, loop: asyncio.AbstractEventLoop, address: Address) -> Address:
        """Listen; returns the address with the actual port."""
        options = AcceptorOptions(connections_max=self.limits.connections_max)
        self._acceptor = Acceptor(loop, address, self._welcome, options)
        return self._acceptor.address

    def _welcome(self, pipe: SocketTcpConnection) -> "HttpConnection":
        deadline = Instant(self._runtime.clock.now() + self.limits.patience_ms * MILLISECOND)
        return HttpConnection(pipe, self, self._runtime.timers.at(deadline, pipe.close))

    def respond(self, head: bytes) -> bytes:
        return respond(head, self._pages)

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
        self._answered = False

    def get_buffer(self) -> memoryview:
        return self._buffer[self._have :]

    def buffer_updated(self, count: int) -> None:
        self._have += count
        head, end, _ = bytes(self._buffer[: self._have]).partition(END_OF_HEAD)
        if end:
            self._send(self._listener.respond(head))
        elif self._have == len(self._buffer):
            self._send(response(HttpResponse(431, b"the head of this request is too large\n")))

    def _send(self, content: bytes) -> None:
        self._answered = True
        self._tcp.pause()
        self._tcp.write([content])
        if self._tcp.pending_bytes == 0:
            self._tcp.close()

    def drained(self) -> None:
        if self._answered:
            self._tcp.close()

    def closed(self) -> None:
        self._patience.cancel()
