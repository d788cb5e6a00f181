"""Pages that the node itself serves, on a port of the loopback interface: health, readiness, metrics.

A secured node wants to know for whom they are: the gateway shows it what it has about the caller.
"""

import asyncio
import base64
from typing import NamedTuple

from penstock.client.cluster.security import StatedCaller

STATEMENT_HEADER = "penstock-statement"

END_OF_HEAD = b"\r\n\r\n"
PATIENCE_SECONDS = 10.0


class NodePage(NamedTuple):
    """A response of the node."""

    status: int
    content_type: str
    body: bytes


class NodePages:
    """Passes requests on to the node's small HTTP server, one connection each."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    def acting_for(self, caller: StatedCaller) -> "NodePages":
        """The same pages, as this caller sees them."""
        return _CallerPages(self._host, self._port, caller)

    async def get(self, path: str) -> NodePage:
        """A page; raises OSError if the node does not respond."""
        return await self._ask(f"GET {path} HTTP/1.1\r\nHost: node\r\n{self._caller}\r\n".encode("latin-1"))

    async def put(self, path: str, body: bytes) -> NodePage:
        head = f"PUT {path} HTTP/1.1\r\nHost: node\r\n{self._caller}Content-Length: {len(body)}\r\n\r\n"
        return await self._ask(head.encode("latin-1") + body)

    @property
    def _caller(self) -> str:
        """The header line that says for whom this is."""
        return ""

    async def _ask(self, request: bytes) -> NodePage:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(self._host, self._port)
            try:
                writer.write(request)
                await writer.drain()
                return _page(await reader.read(-1))
            finally:
                writer.close()


class _CallerPages(NodePages):
    def __init__(self, host: str, port: int, caller: StatedCaller) -> None:
        super().__init__(host, port)
        self._stated = caller

    @property
    def _caller(self) -> str:
        signed = self._stated.signed
        parts = (base64.b64encode(part).decode() for part in (signed.statement, signed.key))
        return f"{STATEMENT_HEADER}: {'.'.join(parts)}\r\n"


def _page(response: bytes) -> NodePage:
    head, end, body = response.partition(END_OF_HEAD)
    if not end:
        raise ConnectionError("the node closed the connection before its response was complete")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return NodePage(int(lines[0].split(" ")[1]), headers.get("Content-Type", "text/plain"), body)
