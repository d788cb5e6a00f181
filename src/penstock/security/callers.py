"""Who calls a server that speaks HTTP: REST, WebSocket, gRPC, and the pages of a node.

    Authorization: Bearer pk_<id>_<secret>     an API key, as does X-API-Key
    Authorization: Bearer <token>              a token of OAuth 2.0 (`oauth`)
    Authorization: Basic <user:password>       a user that has a password
    a client's certificate                     by the rules for its subject

What a caller is, is said by a statement (`delegations`), which is all that the gateway needs to act for it. A
failure is answered after a while, as one on the Kafka port is, and counts as one there; passwords wait for
their turn with those of the Kafka port.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.metadata.access import NO_EXPIRY, ApiKey, ScramCredential
from penstock.core.model import MILLISECOND, Instant, Timestamp
from penstock.core.sasl import Refused
from penstock.core.sasl.delegation import SignedDelegation, read_statement
from penstock.observability import log
from penstock.runtime import Runtime
from penstock.security.audit import LoginMeans, NodeAudit
from penstock.security.authenticator import Authenticator, Token, TokenVerifier
from penstock.security.delegations import Delegations, fingerprint_of
from penstock.security.key_uses import ApiKeyUses
from penstock.security.login_limits import FIRST_DELAY_MS
from penstock.security.options import OAUTHBEARER
from penstock.security.sessions import ANONYMOUS, CallerProtocol, Principal, authorization_of

API_KEY_PREFIX = "pk_"
_API_KEY = re.compile(r"pk_([A-Za-z0-9]{8,40})_([A-Za-z0-9_-]{20,200})")
CREDENTIAL_CHARS_MAX = 16_384
# How the audit log names what a caller is somebody by, beside OAUTHBEARER.
API_KEY, BASIC, CERTIFICATE = "API-KEY", "BASIC", "TLS"


class CallerCredentials(NamedTuple):
    """What a caller says about itself: two headers, and the certificate that TLS has checked (DER)."""

    authorization: str = ""
    api_key: str = ""
    certificate: bytes | None = None

    def __repr__(self) -> str:
        return "CallerCredentials()"

    @property
    def is_empty(self) -> bool:
        return not self.authorization and not self.api_key and self.certificate is None


class NotIdentified(NamedTuple):
    """Why a caller is nobody: for the log, not for the caller."""

    reason: str
    user: str = ""
    # Whether what it has said of itself was wrong; otherwise nobody has looked at it.
    is_judged: bool = True


class CertificateOwners(Protocol):
    """Knows who the owners of certificates are."""

    def principal_of(self, certificate: bytes | None) -> Principal: ...


Identified: TypeAlias = Callable[[SignedDelegation | NotIdentified], None]


def api_key_digest(secret: str) -> bytes:
    """What is kept of an API key. It is random, so that nothing is gained by a slower hash."""
    return hashlib.sha256(secret.encode()).digest()


def means_of(credentials: CallerCredentials) -> LoginMeans:
    """By what a caller wants to be somebody, right or wrong, as the audit log names it."""
    authorization, api_key, certificate = credentials
    if authorization and api_key:
        return LoginMeans(None)
    scheme, value = authorization_of(authorization)
    if api_key or (scheme == "bearer" and value.startswith(API_KEY_PREFIX)):
        read = _API_KEY.fullmatch(api_key or value)
        return LoginMeans(API_KEY, "" if read is None else read[1])
    if authorization:
        return LoginMeans({"bearer": OAUTHBEARER, "basic": BASIC}.get(scheme))
    return LoginMeans(None if certificate is None else CERTIFICATE)


class CallerAuthenticator:
    """Finds out who callers are."""

    def __init__(  # noqa: PLR0913 - what it asks, and whom it tells
        self,
        runtime: Runtime,
        delegations: Delegations,
        authenticator: Authenticator,
        tokens: TokenVerifier | None,
        owners: CertificateOwners | None,
        uses: ApiKeyUses,
        *,
        audit: NodeAudit | None = None,
    ) -> None:
        self._uses = uses
        self._audit = audit
        self._runtime = runtime
        self._delegations = delegations
        self._authenticator = authenticator
        self._tokens = tokens
        self._owners = owners

    def identify(
        self, credentials: CallerCredentials, host: str, done: Identified, protocol: CallerProtocol = "page"
    ) -> None:
        """Call `done` with a statement about the caller, or with why there is none."""

        def found(outcome: SignedDelegation | NotIdentified) -> None:
            authenticator = self._authenticator
            if self._audit is not None:
                self._record(self._audit, credentials, host, protocol, outcome)
            if isinstance(outcome, SignedDelegation):
                authenticator.login_succeeded(host)
                done(outcome)
                return
            delay_ms = FIRST_DELAY_MS
            if outcome.is_judged:
                delay_ms = authenticator.login_failed(host, outcome.user)
            log.warning("gateway.login_failed", host=host, reason=outcome.reason[:200], delay_ms=delay_ms)
            due = Instant(self._runtime.clock.now() + delay_ms * MILLISECOND)
            self._runtime.timers.at(due, lambda: done(outcome))

        if credentials.is_empty:
            # That is how everyone begins; it costs nothing.
            done(NotIdentified("no credentials"))
            return
        self._identify(credentials, host, found)

    def _record(
        self,
        audit: NodeAudit,
        credentials: CallerCredentials,
        host: str,
        protocol: CallerProtocol,
        outcome: SignedDelegation | NotIdentified,
    ) -> None:
        means = means_of(credentials)
        if isinstance(outcome, SignedDelegation):
            audit.logged_in(read_statement(outcome.statement).user, host, protocol, means)
            return
        user, reason = outcome.user, outcome.reason
        if means.api_key:
            owned = self._delegations.image.api_keys.get(means.api_key)
            if owned is None:
                # Whoever guesses makes up as many as they like.
                means, reason = LoginMeans(API_KEY), "unknown API key"
            else:
                user = owned.user
        audit.login_failed(user, host, protocol, means, reason)

    def _identify(self, credentials: CallerCredentials, host: str, found: Identified) -> None:
        authorization, api_key, certificate = credentials
        if len(authorization) + len(api_key) > CREDENTIAL_CHARS_MAX:
            found(NotIdentified("the credentials are too long"))
        elif authorization and api_key:
            # Which one counts must not depend on who reads the request.
            found(NotIdentified("both Authorization and X-API-Key"))
        elif api_key:
            found(self._by_api_key(api_key, host))
        elif authorization:
            scheme, value = authorization_of(authorization)
            self._by_header(scheme, value, host, found)
        else:
            assert certificate is not None
            found(self._by_certificate(certificate, host))

    def _by_header(self, scheme: str, value: str, host: str, found: Identified) -> None:
        if scheme == "bearer" and value.startswith(API_KEY_PREFIX):
            found(self._by_api_key(value, host))
        elif scheme == "bearer" and self._tokens is not None:
            self._by_token(self._tokens, value, host, found)
        elif scheme == "basic":
            self._by_password(value, host, found)
        else:
            found(NotIdentified("an Authorization that is not accepted here"))

    def _by_api_key(self, secret: str, host: str) -> SignedDelegation | NotIdentified:
        read = _API_KEY.fullmatch(secret)
        if read is None:
            return NotIdentified("not an API key")
        stored: ApiKey | None = self._delegations.image.api_keys.get(read[1])
        digest = bytes(32) if stored is None else stored.digest
        is_right = hmac.compare_digest(digest, api_key_digest(secret))
        if stored is None or not is_right:
            return NotIdentified(f"API key {read[1]}: unknown or wrong")
        if NO_EXPIRY != stored.expires <= self._runtime.clock.wall():
            return NotIdentified(f"API key {read[1]} of {stored.user} has expired")
        self._uses.note(stored.id)
        return self._delegations.issue(
            stored.user, host, ends=stored.expires, scope=stored.scope, api_key=stored.id
        )

    def _by_token(self, tokens: TokenVerifier, token: str, host: str, found: Identified) -> None:
        def verified(outcome: Token | str) -> None:
            if isinstance(outcome, str):
                found(NotIdentified(outcome))
                return
            clock = self._runtime.clock
            ends = clock.wall() + (outcome.expires - clock.now()) // MILLISECOND
            found(self._delegations.issue(outcome.user, host, ends=Timestamp(ends)))

        tokens.verify(token, verified)

    def _by_password(self, value: str, host: str, found: Identified) -> None:
        try:
            user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            # Not of base64's letters, not of ASCII's, or not UTF-8.
            found(NotIdentified("not Basic credentials"))
            return
        if not colon or not user or not password:
            found(NotIdentified("Basic credentials have a user and a password"))
            return

        def checked(outcome: ScramCredential | Refused) -> None:
            if isinstance(outcome, Refused):
                found(NotIdentified(outcome.reason, outcome.user, outcome.is_judged))
            else:
                # Of the one that was checked: what follows it ends what is stated now.
                found(self._delegations.issue(user, host, fingerprint=fingerprint_of(outcome)))

        self._authenticator.check_password(user, password, host, checked)

    def _by_certificate(self, certificate: bytes, host: str) -> SignedDelegation | NotIdentified:
        from penstock.security.tls_contexts import end_of_certificate

        principal = ANONYMOUS if self._owners is None else self._owners.principal_of(certificate)
        ends = end_of_certificate(certificate)
        if principal == ANONYMOUS or ends is None:
            return NotIdentified("no rule fits the subject of the certificate, or it cannot be read")
        return self._delegations.issue(principal.name, host, ends=ends)
