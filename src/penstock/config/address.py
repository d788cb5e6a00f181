"""Where to listen, and who votes: the two compound values of the configuration."""

import ipaddress
from typing import Literal, NamedTuple

PORT_MAX = 65_535
NODE_ID_MAX = 2**31 - 1


class Address(NamedTuple):
    """A host and a port; an empty host means every interface, port 0 any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `host:port`, `:port` or `[v6]:port`; ValueError says what is wrong."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port[:6]) > PORT_MAX:
            raise ValueError(f"no port in {text!r}")
        if host.startswith("["):
            if not host.endswith("]"):
                raise ValueError(f"no closing bracket in {text!r}")
            return cls(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        if any(character in host for character in ":/@ []"):
            raise ValueError(f"not a host name: {host!r}")
        return cls("" if host == "*" else host, int(port))

    @property
    def is_every_interface(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than localhost might be anything."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


AddressOrAuto = Address | Literal["auto"]


def parse_address_or_auto(text: str) -> AddressOrAuto:
    """Read `auto` or an address."""
    return "auto" if text.strip() == "auto" else Address.parse(text)


class Voter(NamedTuple):
    """A node that votes in the metadata quorum, and where its peers find it."""

    node_id: int
    address: Address

    @classmethod
    def parse(cls, text: str) -> "Voter":
        """Read `id@host:port`; ValueError says what is wrong."""
        node_id, at, address = text.strip().partition("@")
        if not at or not node_id.isascii() or not node_id.isdigit() or int(node_id[:11]) > NODE_ID_MAX:
            raise ValueError(f"no node id in {text!r}")
        parsed = Address.parse(address)
        if parsed.is_every_interface:
            raise ValueError("a voter needs a host that its peers can reach")
        return cls(int(node_id), parsed)

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"
