"""Byte streams to and from clients, on raw non-blocking sockets.

A pipe hands received bytes to its handler, in a buffer that the handler chose, and
takes what should be sent as a list of parts: buffers, and spans of files. On a plain
connection a span leaves by `sendfile(2)`, so its bytes never enter Python; a TLS pipe
reads the span instead. Nothing here knows a protocol.

    socket readable ── handler.buffer() ── recv_into ── handler.received(n)
    handler ── pipe.write(parts) ── sendmsg / sendfile, as far as the socket takes ──
                                    the rest when it is writable again; handler.drained()

A pipe does not bound what is written to it: the handler looks at `pending_bytes` and
stops reading (`pause`), which in turn holds the client back. What handlers keep of requests
that are not complete is claimed from a `Budget` that all of them share; what pipes keep of
answers that nobody reads is told to whoever asked with `account`, a node's `Backlog`.

Left out: TLS, which comes with security, and the io_uring of the future.
"""

from penstock.runtime.pipes.acceptor import Acceptor, AcceptorOptions
from penstock.runtime.pipes.backlog import Backlog
from penstock.runtime.pipes.budget import Budget
from penstock.runtime.pipes.plain import BUFFERS, PlainPipe
from penstock.runtime.pipes.port import Listen, Part, Pipe, PipeHandler, Span, TcpListener

__all__ = [
    "Pipe",
    "PipeHandler",
    "TcpListener",
    "Listen",
    "Part",
    "Span",
    "BUFFERS",
    "PlainPipe",
    "Backlog",
    "Budget",
    "Acceptor",
    "AcceptorOptions",
]
