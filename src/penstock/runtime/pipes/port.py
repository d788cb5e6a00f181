"""What a gateway sees of a connection."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.runtime.port import Address

Buffer: TypeAlias = bytes | bytearray | memoryview


class Span(Protocol):
    """A range of a file, to be sent without being read."""

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    def fileno(self) -> int:
        """The descriptor to send from, asked for anew before every use."""

    def read(self) -> bytes:
        """The bytes themselves, for pipes that cannot send a file."""


Part: TypeAlias = Buffer | Span


class Pipe(Protocol):
    """One open connection to a client."""

    @property
    def peer(self) -> str:
        """The other side, for people: address and port."""

    @property
    def local(self) -> tuple[str, int]:
        """The address that the client connected to."""

    @property
    def pending_bytes(self) -> int:
        """What was written and has not been taken by the socket yet."""

    @property
    def held_bytes(self) -> int:
        """What of that is in memory: not the spans."""

    @property
    def sent_bytes(self) -> int:
        """What the socket has taken since the beginning."""

    def account(self, moved: Callable[[int], None]) -> None:
        """Tell `moved` by how much `held_bytes` has changed, from now on."""

    def write(self, parts: list[Part]) -> None:
        """Send all parts in order, now or when the socket takes them. A closed pipe drops them."""

    def pause(self) -> None:
        """Read no more until `resume`."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """End the connection; what is pending is dropped. The handler hears `closed` once."""


class PipeHandler(Protocol):
    """The gateway's side of a connection."""

    def buffer(self) -> memoryview:
        """Where the next bytes should go; never empty. Valid until `received` returns."""

    def received(self, count: int) -> None:
        """So many bytes were put into the buffer just asked for."""

    def drained(self) -> None:
        """All that was pending has been taken by the socket."""

    def closed(self) -> None:
        """The connection is over, whoever ended it. Called exactly once."""


class TcpListener(Protocol):
    """An address at which clients come in."""

    @property
    def address(self) -> Address:
        """With the port that was found, if none was named."""

    def stop_accepting(self) -> None:
        """Take no new connections; those that exist stay."""

    def close(self) -> None:
        """Close the listener and every connection that came in through it."""


# Opens a listener; the function that it is given is asked for the handler of every new connection.
Listen: TypeAlias = Callable[[Address, Callable[[Pipe], PipeHandler]], TcpListener]
