"""TLS and logins of connections to the brokers of one cluster, as somebody or for somebody."""

import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Protocol

from penstock.client.connection_security import ConnectionSecurity
from penstock.client.endpoint import Endpoint
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
    """How connections are opened, and as whom: with a `login`, or for a `caller`.

    `on_throttle` hears how many ms brokers want us to wait, and `on_connect` from which port of this machine
    a connection comes, before it does.
    """

    def __init__(
        self,
        tls: ClusterTls | None = None,
        caller: StatedCaller | None = None,
        on_throttle: Callable[[int], None] | None = None,
        login: ConnectionSecurity | None = None,
        on_connect: Callable[[int], None] | None = None,
    ) -> None:
        self.tls = tls
        self.caller = caller
        self.on_throttle = on_throttle
        self.login = login
        self.on_connect = on_connect

    def context_for(self, host: str) -> ssl.SSLContext | None:
        """The TLS of a connection to this host, if it has any."""
        if self.login is not None:
            return self.login.context
        if self.tls is None:
            return None
        return self.tls.local_context if _is_local(host) else self.tls.context


def cluster_security(endpoint: Endpoint) -> ClusterSecurity | None:
    """What connections to the endpoint's brokers do first; None for plain ones."""
    return None if endpoint.is_plaintext else ClusterSecurity(login=ConnectionSecurity(endpoint.options))


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
