"""Finding out early whether the addresses of a node can be had.

A socket that is bound and does not listen keeps a port for us, and fails if somebody listens
there already; with SO_REUSEADDR the listener that comes later may bind the same address.
That way a node names its listeners, chosen ports included, before it lets anybody in.
"""

import socket

from penstock.runtime import Address, AddressUnavailable

EVERYWHERE = ("", "0.0.0.0", "::")


class AddressTaken(AddressUnavailable):
    """An address that a node needs cannot be had; `name` says what would have listened there."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class Reservation:
    """An address that nobody else listens on; `address` has the port that was found."""

    def __init__(self, wanted: Address) -> None:
        family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((wanted.host, wanted.port))
        except OSError as error:
            self._socket.close()
            raise AddressUnavailable(f"cannot listen on {wanted}: {error.strerror or error}") from error
        self.address = Address(wanted.host, self._socket.getsockname()[1])

    def close(self) -> None:
        """Let go, after the listener is open."""
        self._socket.close()


class Reservations:
    """Addresses by the name of what will listen there; all of them or none."""

    def __init__(self, wanted: dict[str, Address]) -> None:
        self._held: dict[str, Reservation] = {}
        try:
            for name, address in wanted.items():
                self._held[name] = Reservation(address)
        except AddressUnavailable as error:
            self.close()
            raise AddressTaken(name, str(error)) from error

    def __getitem__(self, name: str) -> Address:
        return self._held[name].address

    def close(self) -> None:
        for reservation in self._held.values():
            reservation.close()


def reachable(address: Address) -> Address:
    """An address that other machines can use, where the bound one means every interface."""
    if address.host in EVERYWHERE:
        return Address(socket.gethostname(), address.port)
    return address
