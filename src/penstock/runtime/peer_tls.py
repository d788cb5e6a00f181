"""TLS on a link between nodes.

Both sides present a certificate, and the certificate names a node: the hello that follows must be of that
node, or the link ends. The session sits between a link and its socket and looks like a socket to the
link's outbox, so that frames, limits and back-pressure are the same with TLS and without.

    socket ── ciphertext ──▶ TlsSession.feed ── plaintext ──▶ PeerFrameReader
    socket ◀── ciphertext ── TlsSession.sendmsg ◀── parts ─── LinkOutbox

The first byte of a connection says what it is: a TLS record of a handshake starts with 0x16, a frame
of a plain hello with the 0 of its length. So one port can take both, while a cluster moves to TLS.

Left out: resumption. A session lasts as long as its link, and each new link is verified anew, so that a
replaced authority counts from the next one on.
"""

import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.model import NodeId
from penstock.runtime.port import Buffer

HANDSHAKE_BYTE = 0x16
# Plaintext that is encrypted at once, and offered to the socket before more is made.
PIECE_BYTES = 64 << 10
# What one turn of the loop encrypts for one link.
TURN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CertificateRefusal:
    """Why a certificate does not open a link."""

    reason: str


class PeerTls(Protocol):
    """The certificates of this node, and the rule that finds a node's id in another's."""

    @property
    def accepts_plain(self) -> bool:
        """Whether links without TLS are taken too, and dialled where the other side has none."""

    @property
    def server(self) -> ssl.SSLContext:
        """The context for the next link that is accepted."""

    @property
    def client(self) -> ssl.SSLContext:
        """The context for the next link that is dialled."""

    def node_of(self, certificate: bytes) -> NodeId | CertificateRefusal:
        """Which node the certificate (DER) is of; the chain behind it has been verified."""

    def check(self) -> None:
        """Look at the files again: called every few seconds."""


class TlsSession:
    """The TLS of one link, over its socket."""

    __slots__ = ("_connected", "_incoming", "_outgoing", "_tls", "_unsent", "is_established")

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._connected = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._unsent = memoryview(b"")
        self.is_established = False

    @property
    def unsent_bytes(self) -> int:
        """Ciphertext that the socket has not taken."""
        return len(self._unsent) + self._outgoing.pending

    @property
    def certificate(self) -> bytes | None:
        """The peer's certificate (DER)."""
        return self._tls.getpeercert(binary_form=True)

    def feed(self, ciphertext: memoryview) -> None:
        """Add what was read from the socket."""
        self._incoming.write(ciphertext)

    def shake_hands(self) -> bool:
        """Go on with the handshake; True when it is complete. SSLError if it cannot be."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_established = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt into the buffer; 0: nothing more. SSLZeroReturnError at the end of the session."""
        try:
            # With a buffer, it returns how many bytes it has put there.
            return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]
        except ssl.SSLWantReadError:
            return 0

    def sendmsg(self, parts: Sequence[Buffer]) -> int:
        """Encrypt and send; returns how many bytes of the parts were taken. BlockingIOError: none."""
        if not self.flush():
            raise BlockingIOError
        taken = 0
        for piece in _pieces(parts):
            self._tls.write(piece)
            taken += len(piece)
            if not self.flush() or taken >= TURN_BYTES:
                break
        return taken

    def flush(self) -> bool:
        """Send the ciphertext that waits, of the handshake as well; True if none is left."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                self._unsent = self._unsent[self._connected.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return False


def _pieces(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    """The parts as pieces of a size that suits TLS: small ones together, large ones bit by bit."""
    together = bytearray()
    for part in parts:
        if len(part) >= PIECE_BYTES:
            if together:
                yield together
                together = bytearray()
            whole = memoryview(part)
            for start in range(0, len(whole), PIECE_BYTES):
                yield whole[start : start + PIECE_BYTES]
            continue
        together += part
        if len(together) >= PIECE_BYTES:
            yield together
            together = bytearray()
    if together:
        yield together


def tls_reason(error: OSError) -> str:
    """What went wrong, in words that name the remedy where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    return _REASONS.get(reason, str(reason).lower().replace("_", " "))


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it refuses our certificate: it does not trust its authority",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate from us",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it refuses our certificate: it has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it refuses our certificate: it is not one for nodes",
}
