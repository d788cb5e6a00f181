"""A listening socket that turns connections into pipes."""

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass

from penstock.observability import log
from penstock.runtime.pipes.plain import PlainPipe
from penstock.runtime.pipes.port import PipeHandler
from penstock.runtime.port import Address, AddressUnavailable

# Out of descriptors or memory: what is waiting stays in the kernel's queue for a while.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class AcceptorOptions:
    """Limits of one door."""

    connections_max: int = 10_000
    backlog: int = 1024
    accepts_per_turn: int = 64
    retry_seconds: float = 0.1


class Acceptor:
    """One open door. `welcome` is asked for the handler of every new pipe."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        welcome: Callable[[PlainPipe], PipeHandler],
        options: AcceptorOptions | None = None,
    ) -> None:
        self._loop = loop
        self._welcome = welcome
        self._options = options or AcceptorOptions()
        self._pipes: dict[PlainPipe, None] = {}
        self._socket = _listen(address, self._options.backlog)
        host, port = self._socket.getsockname()[:2]
        self.address = Address(host, port)
        self._open = True
        self._loop.add_reader(self._socket, self._acceptable)

    @property
    def connections(self) -> int:
        return len(self._pipes)

    def pipes(self) -> list[PlainPipe]:
        """The open connections, for a sweep."""
        return list(self._pipes)

    def _acceptable(self) -> None:
        for _ in range(self._options.accepts_per_turn):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._rest_for_a_while()
                return
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        if len(self._pipes) >= self._options.connections_max:
            connection.close()
            return
        connection.setblocking(False)
        try:
            _tune(connection)
            pipe = PlainPipe(self._loop, connection, self._forget)
        except OSError:  # the client left while it waited in the queue
            connection.close()
            return
        self._pipes[pipe] = None
        pipe.start(self._welcome(pipe))

    def _forget(self, pipe: PlainPipe) -> None:
        self._pipes.pop(pipe, None)

    def _rest_for_a_while(self) -> None:
        log.warning("acceptor.out_of_descriptors", address=str(self.address), connections=len(self._pipes))
        self._loop.remove_reader(self._socket)
        self._loop.call_later(self._options.retry_seconds, self._wake)

    def _wake(self) -> None:
        if self._open:
            self._loop.add_reader(self._socket, self._acceptable)

    def stop_accepting(self) -> None:
        """Take no new connections; those that exist stay."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def close(self) -> None:
        """Close the door and every connection that came through it."""
        self.stop_accepting()
        for pipe in self.pipes():
            pipe.close()


def _tune(connection: socket.socket) -> None:
    """Send at once, and notice within two minutes that the other machine is gone without a word."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def _listen(address: Address, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setblocking(False)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((address.host, address.port))
        door.listen(backlog)
    except OSError as error:
        door.close()
        raise AddressUnavailable(f"cannot listen on {address}: {error.strerror or error}") from error
    return door
