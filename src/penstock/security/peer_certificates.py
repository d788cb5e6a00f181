"""How nodes prove to each other who they are: certificates that name a node id.

A certificate is of node 1 if it has the URI `penstock:node:1` among its names, as `penstock certs node 1`
makes it, or if a rule of `security.tls.node_rules` makes a `1` of its subject. It must have been issued by
`security.tls.authority`, and be good for both ends of a connection, as each node dials and is dialled.

A node presents its own certificate to itself before it uses it: what the others would refuse, for whatever
reason OpenSSL has, ends the start with that reason, and is not taken when the files change later.

Left out: ending links when a certificate expires or its authority is taken away. It counts for the next
link; a node that must go now is stopped, or its host is cut off.
"""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from penstock.core.model import NodeId
from penstock.observability import log
from penstock.runtime.peer_tls import CertificateRefusal
from penstock.security.certificates import UNREADABLE, node_id_of, node_of
from penstock.security.options import TlsOptions
from penstock.security.tls_contexts import (
    SUBJECT_CHARS_MAX,
    PrincipalRule,
    TlsUnusable,
    file_stamp,
    load_files,
    private_context,
)

# An operator is told this long before nobody takes the node's certificate any more, and then once a day.
EXPIRES_SOON = timedelta(days=14)
REMINDER = timedelta(days=1)


class PeerCertificates:
    """The certificates for links between nodes; a `PeerTls` of the runtime."""

    def __init__(self, options: TlsOptions, node_id: NodeId, *, accepts_plain: bool = False) -> None:
        """Read the files, or raise TlsUnusable."""
        self._options = options
        self._node_id = node_id
        self._rules = tuple(
            PrincipalRule.parse(rule, "security.tls.node_rules") for rule in options.node_rules
        )
        self._reminded = datetime.min.replace(tzinfo=UTC)
        self._accepts_plain = accepts_plain
        self._stamps = self._read_stamps()
        self._server, self._client, self._expires = self._load()
        self._remind()

    @property
    def accepts_plain(self) -> bool:
        return self._accepts_plain

    @property
    def server(self) -> ssl.SSLContext:
        return self._server

    @property
    def client(self) -> ssl.SSLContext:
        return self._client

    def check(self) -> None:
        """Read the files again if they have changed; what cannot be used is reported, and changes nothing."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._server, self._client, self._expires = self._load()
            except TlsUnusable as error:
                log.error("peer.certificate_refused", reason=str(error))
            else:
                log.info("peer.certificate_replaced", file=self._options.certificate, until=self._expires)
                self._reminded = datetime.min.replace(tzinfo=UTC)
        self._remind()

    def _remind(self) -> None:
        now = datetime.now(UTC)
        if now + EXPIRES_SOON < self._expires or now - self._reminded < REMINDER:
            return
        self._reminded = now
        log.warning("peer.certificate_expires", file=self._options.certificate, until=self._expires)

    def node_of(self, certificate: bytes) -> NodeId | CertificateRefusal:
        try:
            return self._node_in(x509.load_der_x509_certificate(certificate))
        except UNREADABLE as error:
            return CertificateRefusal(f"its certificate cannot be read: {error}")

    def _node_in(self, certificate: x509.Certificate) -> NodeId | CertificateRefusal:
        node = node_of(certificate)
        subject = certificate.subject.rfc4514_string()
        # A part of a subject might fit a rule that the whole does not.
        if node is None and len(subject) <= SUBJECT_CHARS_MAX:
            node = next(
                (found for rule in self._rules if (found := _node_by(rule, subject)) is not None), None
            )
        if node is None:
            return CertificateRefusal(
                f"its certificate ({subject[:SUBJECT_CHARS_MAX]}) is of no node: it names no node id"
            )
        return node

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext, datetime]:
        options = self._options
        if not options.authority:
            raise TlsUnusable("security.peers: nodes need security.tls.authority to know each other")
        server, client = (
            private_context(options, protocol)
            for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        )
        certificate = self._own_certificate()
        for context in (server, client):
            load_files(context, options)
            # Which host a node has says nothing: its id does, and links are checked for it.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_REQUIRED
        server.num_tickets = 0
        reason = _refusal_of(server, client)
        if reason is not None:
            raise TlsUnusable(f"{options.certificate} would be refused by other nodes: {reason}")
        return server, client, certificate.not_valid_after_utc

    def _own_certificate(self) -> x509.Certificate:
        path = self._options.certificate
        try:
            certificate = x509.load_pem_x509_certificates(Path(path).read_bytes())[0]
            node = self._node_in(certificate)
        except OSError as error:
            raise TlsUnusable(f"{path}: {error.strerror}") from None
        except UNREADABLE as error:
            raise TlsUnusable(f"{path} has no certificate that can be read: {error}") from None
        if isinstance(node, CertificateRefusal):
            raise TlsUnusable(
                f"{path} names no node id: `penstock certs node {self._node_id}` makes one that does, "
                "security.tls.node_rules finds it in the subject, security.peers: plain does without"
            )
        if node != self._node_id:
            raise TlsUnusable(f"{path} is the certificate of node {node}, and this is node {self._node_id}")
        return certificate

    def _read_stamps(self) -> tuple[object, ...]:
        options = self._options
        return tuple(map(file_stamp, (options.certificate, options.key, options.authority)))


def _node_by(rule: PrincipalRule, subject: str) -> NodeId | None:
    number = rule.apply(subject)
    return None if number is None else node_id_of(number)


def _refusal_of(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Shake hands with ourselves: what others would not like about our certificate, as either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialled = client.wrap_bio(to_client, to_server, server_side=False)
    accepted = server.wrap_bio(to_server, to_client, server_side=True)
    # Client hello, server's flight, client's flight, and the server reads it.
    for side in (dialled, accepted, dialled, accepted):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:
            return error.reason
    return None
