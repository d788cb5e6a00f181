"""Where to listen, and who votes: the two compound values of the configuration."""

import ipaddress
from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

PORT_MAX = 65_535
NODE_ID_MAX = 2**31 - 1
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FIELDS = ("name", "protocol", "bind", "advertised")


class ListenAddress(NamedTuple):
    """A host and a port; an empty host means every interface, port 0 any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
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


AddressOrAuto = ListenAddress | Literal["auto"]


def parse_address_or_auto(text: str) -> AddressOrAuto:
    """Read `auto` or an address."""
    return "auto" if text.strip() == "auto" else ListenAddress.parse(text)


class VoterAddress(NamedTuple):
    """A node that votes in the metadata quorum, and where its peers find it."""

    node_id: int
    address: ListenAddress

    @classmethod
    def parse(cls, text: str) -> "VoterAddress":
        """Read `id@host:port`; ValueError says what is wrong."""
        node_id, at, address = text.strip().partition("@")
        if not at or not node_id.isascii() or not node_id.isdigit() or int(node_id[:11]) > NODE_ID_MAX:
            raise ValueError(f"no node id in {text!r}")
        parsed = ListenAddress.parse(address)
        if parsed.is_every_interface:
            raise ValueError("a voter needs a host that its peers can reach")
        return cls(int(node_id), parsed)

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


class ListenerSetting(NamedTuple):
    """A Kafka listener; `auto` advertises the address that a client connected to."""

    name: str
    protocol: Protocol
    bind: ListenAddress
    advertised: AddressOrAuto = "auto"

    @classmethod
    def parse(cls, text: str) -> "ListenerSetting":
        """Read `name=protocol://bind` or `name=protocol://bind/advertised`; ValueError says what is wrong.

        >>> Listener.parse("inside=plaintext://127.0.0.1:9192/localhost:9192").bind
        Address(host='127.0.0.1', port=9192)
        """
        name, equals, rest = text.strip().partition("=")
        protocol, separator, places = rest.partition("://")
        bind, _, advertised = places.partition("/")
        if not equals or not separator or not _is_name(name):
            raise ValueError(f"not name=protocol://host:port: {text!r}")
        if protocol.upper() not in PROTOCOLS:
            raise ValueError(f"unknown protocol {protocol!r}")
        return cls(
            name,
            cast("Protocol", protocol.upper()),
            ListenAddress.parse(bind),
            _parse_advertised(advertised or "auto"),
        )

    @classmethod
    def compose(cls, fields: Mapping[str, str]) -> str:
        """The text form of a listener written out as a mapping in the file; ValueError names a wrong key."""
        for key in fields:
            if key not in _FIELDS:
                raise ValueError(f"unknown key {key}")
        for key in ("name", "bind"):
            if not fields.get(key):
                raise ValueError(f"a listener needs {key}")
        protocol = fields.get("protocol") or "PLAINTEXT"
        return f"{fields['name']}={protocol}://{fields['bind']}/{fields.get('advertised') or 'auto'}"

    def __str__(self) -> str:
        advertised = "" if self.advertised == "auto" else f"/{self.advertised}"
        return f"{self.name}={self.protocol}://{self.bind}{advertised}"


def _parse_advertised(text: str) -> AddressOrAuto:
    """Clients cannot connect to "every interface", so a host is needed."""
    address = parse_address_or_auto(text)
    if address != "auto" and address.is_every_interface:
        raise ValueError("an advertised address needs a host that clients can reach")
    return address


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 64 and all(c.isascii() and (c.isalnum() or c in "_-.") for c in text)
