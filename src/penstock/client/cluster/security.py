"""TLS and logins of connections to the brokers of one cluster, for a gateway that acts for somebody."""

import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Protocol

from penstock.core.sasl.delegation import SignedDelegation


class StatedCaller(Protocol):
    """Somebody about whom a node makes statements, a new one from time to time."""

    @property
    def signed(self) -> SignedDelegation:
        """The newest one."""


class ClusterTls(Protocol):
    """What a client knows brokers by."""

    @property
    def context(self) -> ssl.SSLContext: ...

    @property
    def local_context(self) -> ssl.SSLContext:
        """The same without a look at the host's name, for brokers of this machine."""


class ClusterSecurity:
    """How connections are opened, and for whom; `on_throttle` hears how many ms brokers want us to wait."""

    def __init__(
        self,
        tls: ClusterTls | None = None,
        caller: StatedCaller | None = None,
        on_throttle: Callable[[int], None] | None = None,
    ) -> None:
        self.tls = tls
        self.caller = caller
        self.on_throttle = on_throttle

    def context_for(self, host: str) -> ssl.SSLContext | None:
        """The TLS of a connection to this host, if it has any."""
        if self.tls is None:
            return None
        return self.tls.local_context if _is_local(host) else self.tls.context


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
