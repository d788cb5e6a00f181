"""TLS of a gateway: what its servers show to clients, and what it knows the brokers by.

Files are looked at every few seconds. New connections get what is there; those that exist keep theirs.
"""

import ssl

from penstock.observability import log
from penstock.security.tls_contexts import TlsContexts, TlsUnusable, client_context
from penstock.server.gateway.options import GatewayTls

CHECK_SECONDS = 2.0


class GatewayCertificates:
    """The contexts made of the node's files; made again when one changes."""

    def __init__(self, options: GatewayTls) -> None:
        """Read the files, or raise TlsUnusable."""
        self.options = options.options
        self._server = TlsContexts(self.options)
        self.context, self.local_context = self._client_contexts()

    @property
    def server_context(self) -> ssl.SSLContext:
        return self._server.current

    def check(self) -> bool:
        """Read what has changed; returns whether something has, and can be used."""
        before = self._server.current
        self._server.check()
        if self._server.current is before:
            return False
        try:
            self.context, self.local_context = self._client_contexts()
        except TlsUnusable as error:
            log.error("tls.certificate_refused", reason=str(error))
        return True

    def _client_contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        local = client_context(self.options)
        # A broker of this machine is reached at an address that its certificate need not name.
        local.check_hostname = False
        return client_context(self.options), local
