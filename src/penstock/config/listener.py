"""One more Kafka door: its name, its protocol, where it listens, and how clients are told to reach it."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

from penstock.config.address import Address, AddressOrAuto, parse_address_or_auto

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MAIN_NAME = "PLAINTEXT"
_FIELDS = ("name", "protocol", "bind", "advertised")


class Listener(NamedTuple):
    """A Kafka listener; `auto` advertises the address by which a client came in."""

    name: str
    protocol: Protocol
    bind: Address
    advertised: AddressOrAuto = "auto"

    @classmethod
    def parse(cls, text: str) -> "Listener":
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
            Address.parse(bind),
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
