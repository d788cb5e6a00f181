"""TLS and logins of our own connections, by the settings that librdkafka has for its own.

security.protocol                      plaintext, ssl, sasl_plaintext or sasl_ssl
sasl.mechanism, sasl.username, …       SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN
ssl.ca.location, ssl.certificate.…     whom we trust, and who we are
"""

import secrets
import socket
import ssl
from collections.abc import Callable, Mapping

from penstock.client.endpoint import ClientError
from penstock.core.metadata.access import ScramMechanism
from penstock.core.sasl.scram import ScramClient

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
PLAIN = "PLAIN"
_SCRAM = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
_FALSE = ("false", "0", "no", "none")


class LoginFailed(ClientError):
    """The broker does not believe who we are."""


class ConnectionSecurity:
    """What a connection does before its first request."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """ClientError names a setting that is missing or wrong."""
        protocol = options.get("security.protocol", "plaintext").strip().lower()
        if protocol not in PROTOCOLS:
            raise ClientError(f"security.protocol={protocol}: there are {', '.join(PROTOCOLS)}")
        self._context = _context(options) if protocol.endswith("ssl") else None
        self.mechanism: str | None = None
        if protocol.startswith("sasl"):
            self.mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms") or ""
            if self.mechanism != PLAIN and self.mechanism not in _SCRAM:
                raise ClientError(
                    f"sasl.mechanism={self.mechanism}: this needs {PLAIN} or {' or '.join(_SCRAM)}"
                )
            self._user, self._password = options.get("sasl.username", ""), options.get("sasl.password", "")
            if not self._user or not self._password:
                raise ClientError("a login needs sasl.username and sasl.password")

    @property
    def is_plaintext(self) -> bool:
        return self._context is None and self.mechanism is None

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS of the connection, if it has any."""
        return self._context

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        """The same connection with TLS, if it is to have that; OSError if it cannot be."""
        if self._context is None:
            return connected
        return self._context.wrap_socket(connected, server_hostname=host)

    def log_in(self, exchange: Callable[[bytes], bytes]) -> None:
        """Log in, after the handshake; `exchange` sends a message and returns what comes back."""
        assert self.mechanism is not None
        if self.mechanism == PLAIN:
            exchange(f"\x00{self._user}\x00{self._password}".encode())
            return
        client = ScramClient(_SCRAM[self.mechanism], self._user, self._password, secrets.token_urlsafe(24))
        try:
            proof = client.last(exchange(client.first()))
        except ValueError as wrong:
            raise LoginFailed(f"login as {self._user}: {wrong}") from None
        if not client.is_verified(exchange(proof)):
            raise LoginFailed("the broker could not prove that it knows the password")


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    authority = options.get("ssl.ca.location", "")
    certificate, key = options.get("ssl.certificate.location"), options.get("ssl.key.location")
    try:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate:
            context.load_cert_chain(certificate, key or None, options.get("ssl.key.password"))
    except (ssl.SSLError, OSError) as error:
        raise ClientError(
            f"the certificates of ssl.ca.location and ssl.certificate.location cannot be used: {error}"
        ) from None
    if options.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if options.get("enable.ssl.certificate.verification", "true").lower() in _FALSE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
