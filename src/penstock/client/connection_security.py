"""TLS and logins of our own connections, by the settings that librdkafka has for its own.

security.protocol                      plaintext, ssl, sasl_plaintext or sasl_ssl
sasl.mechanism, sasl.username, …       SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN
ssl.ca.location, ssl.certificate.…     whom we trust, and who we are: PEM files, PEM text, or PKCS #12
"""

import os
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

from penstock.client.endpoint import ClientError
from penstock.core.metadata.access import ScramMechanism
from penstock.core.sasl.scram import ScramClient

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
PLAIN = "PLAIN"
_SCRAM = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
# Where Linux has the files that a process has opened.
_OPENED = "/proc/self/fd/{}"
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

    def messages(self) -> Generator[bytes, bytes, None]:
        """The messages of a login, after the handshake; each is sent what came back for the one before."""
        assert self.mechanism is not None
        if self.mechanism == PLAIN:
            yield f"\x00{self._user}\x00{self._password}".encode()
            return
        client = ScramClient(_SCRAM[self.mechanism], self._user, self._password, secrets.token_urlsafe(24))
        challenge = yield client.first()
        try:
            proof = client.last(challenge)
        except ValueError as wrong:
            raise LoginFailed(f"login as {self._user}: {wrong}") from None
        if not client.is_verified((yield proof)):
            raise LoginFailed("the broker could not prove that it knows the password")

    def log_in(self, exchange: Callable[[bytes], bytes]) -> None:
        """Log in, after the handshake; `exchange` sends a message and returns what comes back."""
        messages = self.messages()
        with suppress(StopIteration):
            message = next(messages)
            while True:
                message = messages.send(exchange(message))


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    authority = options.get("ssl.ca.location", "")
    try:
        context = ssl.create_default_context(cafile=authority or None, cadata=options.get("ssl.ca.pem"))
        _present_certificate(context, options)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ClientError(
            "the certificates of ssl.ca.location, ssl.certificate.location or ssl.keystore.location "
            f"cannot be used: {error}"
        ) from None
    if options.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if options.get("enable.ssl.certificate.verification", "true").lower() in _FALSE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _present_certificate(context: ssl.SSLContext, options: Mapping[str, str]) -> None:
    """Let the context show our certificate, if we have one."""
    certificate, key = options.get("ssl.certificate.location"), options.get("ssl.key.location")
    password = options.get("ssl.key.password")
    texts = [options.get(name, "") for name in ("ssl.key.pem", "ssl.certificate.pem")]
    if store := options.get("ssl.keystore.location"):
        texts, password = [_read_store(store, options.get("ssl.keystore.password"))], None
    if any(texts):
        with _as_file("\n".join(texts)) as both:
            context.load_cert_chain(both, None, password)
    elif certificate:
        context.load_cert_chain(certificate, key or None, password)


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The path of a file with this text: Python reads certificates from files only.

    It is in memory where the system has such files, so that no key stays on a disk whatever happens.
    Elsewhere nobody else can read it, and it is gone at once.
    """
    with _nameless_file() or tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield _OPENED.format(file.fileno()) if isinstance(file.name, int) else file.name


def _nameless_file() -> IO[str] | None:
    """A file in memory that can be opened again, if there are any."""
    try:
        opened = os.memfd_create("certificate")
    except (AttributeError, OSError):
        return None
    if os.path.exists(_OPENED.format(opened)):
        return os.fdopen(opened, "w")
    os.close(opened)
    return None


def _read_store(file: str, password: str | None) -> str:
    """The key and the certificates of a PKCS #12 file, as PEM."""
    # Imported for those who have such a file.
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    with open(file, "rb") as opened:
        content = opened.read()
    key, certificate, others = pkcs12.load_key_and_certificates(
        content, None if password is None else password.encode()
    )
    if key is None or certificate is None:
        raise ValueError(f"{file} lacks a key or a certificate")
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [one.public_bytes(Encoding.PEM) for one in (certificate, *others)]
    return b"".join(parts).decode()
