"""What all links of a node share: the loop, the limits, and who we are."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.runtime.peers.hello import Admit, Hello, Refusal, same_cluster
from penstock.runtime.peers.options import PeerOptions
from penstock.runtime.port import Callback, Clock
from penstock.runtime.timers import Deliver

# One read per link and loop turn: large enough for bulk replication, small enough
# that a turn over many links stays short.
_READ_BYTES = 256 * 1024


class Wiring:
    """The links' way to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        deliver: Deliver,
        *,
        hello: Hello,
        admit: Admit | None,
        options: PeerOptions,
    ) -> None:
        self._loop = loop
        self.clock = clock
        self.deliver = deliver
        self.hello = hello
        self._admit = admit
        self.options = options
        self.scratch = memoryview(bytearray(_READ_BYTES))
        self.links: dict[object, None] = {}  # in order of age
        self._saturated: set[object] = set()

    def admit(self, hello: Hello) -> Refusal | None:
        """Judge a peer: by the rule we were given, or else by its cluster."""
        return (self._admit or same_cluster(self.hello.identity))(hello)

    def join_cluster(self, cluster_id: UUID) -> None:
        self.hello = replace(self.hello, identity=self.hello.identity._replace(cluster_id=cluster_id))

    def sockets_busy(self) -> bool:
        """Whether some link's last read left bytes in the kernel."""
        return bool(self._saturated)

    def note_read(self, link: object, *, saturated: bool) -> None:
        if saturated:
            self._saturated.add(link)
        else:
            self._saturated.discard(link)

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon(self.deliver, callback, *arguments)

    def start_reading(self, connected: socket.socket, readable: Callback) -> None:
        self._loop.add_reader(connected, readable)

    def stop_reading(self, link: object, connected: socket.socket) -> None:
        self._saturated.discard(link)
        self._loop.remove_reader(connected)

    def start_writing(self, connected: socket.socket, writable: Callback) -> None:
        self._loop.add_writer(connected, writable)

    def stop_writing(self, connected: socket.socket) -> None:
        self._loop.remove_writer(connected)

    def forget(self, link: object, connected: socket.socket | None) -> None:
        """The link is over: leave its socket alone from now on."""
        self.links.pop(link, None)
        self._saturated.discard(link)
        if connected is not None:
            self._loop.remove_reader(connected)
            self._loop.remove_writer(connected)
