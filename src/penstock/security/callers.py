"""Who calls a server that speaks HTTP: REST, WebSocket, gRPC, and the pages of a node.

    Authorization: Bearer pk_<id>_<secret>     an API key, as does X-API-Key
    Authorization: Bearer <token>              a token of OAuth 2.0 (`oauth`)
    Authorization: Basic <user:password>       a user that has a password
    a client's certificate                     by the rules for its subject

What a caller is, is said by a statement (`delegations`), which is all that the gateway needs to act for it. A
failure is answered after a while, as one on the Kafka port is, and counts as one there.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.metadata.access import NO_EXPIRY, ApiKey, ScramMechanism
from penstock.core.model import MILLISECOND, Instant, Timestamp
from penstock.core.sasl.delegation import SignedDelegation
from penstock.observability import log
from penstock.runtime import Runtime
from penstock.security.authenticator import Authenticator, Token, TokenVerifier
from penstock.security.delegations import Delegations, fingerprint_of
from penstock.security.key_uses import ApiKeyUses
from penstock.security.sessions import ANONYMOUS, Principal

API_KEY_PREFIX = "pk_"
_API_KEY = re.compile(r"pk_([A-Za-z0-9]{8,40})_([A-Za-z0-9_-]{20,200})")
CREDENTIAL_CHARS_MAX = 16_384


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


class CertificateOwners(Protocol):
    """Knows who the owners of certificates are."""

    def principal_of(self, certificate: bytes | None) -> Principal: ...


Identified: TypeAlias = Callable[[SignedDelegation | NotIdentified], None]


def api_key_digest(secret: str) -> bytes:
    """What is kept of an API key. It is random, so that nothing is gained by a slower hash."""
    return hashlib.sha256(secret.encode()).digest()


class CallerAuthenticator:
    """Finds out who callers are."""

    def __init__(
        self,
        runtime: Runtime,
        delegations: Delegations,
        authenticator: Authenticator,
        tokens: TokenVerifier | None,
        owners: CertificateOwners | None,
        uses: ApiKeyUses,
    ) -> None:
        self._uses = uses
        self._runtime = runtime
        self._delegations = delegations
        self._authenticator = authenticator
        self._tokens = tokens
        self._owners = owners

    def identify(self, credentials: CallerCredentials, host: str, done: Identified) -> None:
        """Call `done` with a statement about the caller, or with why there is none."""

        def found(outcome: SignedDelegation | NotIdentified) -> None:
            limits = self._authenticator.limits
            if isinstance(outcome, SignedDelegation):
                limits.succeeded(host)
                done(outcome)
                return
            now = self._runtime.clock.now()
            delay_ms = limits.failed(host, outcome.user, now)
            log.warning("gateway.login_failed", host=host, reason=outcome.reason[:200], delay_ms=delay_ms)
            self._runtime.timers.at(Instant(now + delay_ms * MILLISECOND), lambda: done(outcome))

        if credentials.is_empty:
            # That is how everyone begins; it costs nothing.
            done(NotIdentified("no credentials"))
            return
        self._identify(credentials, host, found)

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
            scheme, _, value = authorization.partition(" ")
            self._by_header(scheme.lower(), value.strip(), host, found)
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
        except (binascii.Error, UnicodeDecodeError):
            found(NotIdentified("not Basic credentials"))
            return
        if not colon or not user or not password:
            found(NotIdentified("Basic credentials have a user and a password"))
            return

        def checked(is_right: bool) -> None:
            credential = next(
                (
                    stored
                    for mechanism in ScramMechanism
                    if (stored := self._delegations.image.credentials.get((user, mechanism))) is not None
                ),
                None,
            )
            if not is_right or credential is None:
                found(NotIdentified(f"{user}: unknown user or wrong password", user))
            else:
                found(self._delegations.issue(user, host, fingerprint=fingerprint_of(credential)))

        self._authenticator.check_password(user, password, checked)

    def _by_certificate(self, certificate: bytes, host: str) -> SignedDelegation | NotIdentified:
        from penstock.security.tls_contexts import end_of_certificate

        principal = ANONYMOUS if self._owners is None else self._owners.principal_of(certificate)
        if principal == ANONYMOUS:
            return NotIdentified("no rule fits the subject of the certificate")
        return self._delegations.issue(principal.name, host, ends=end_of_certificate(certificate))
