"""Statements of nodes about who the clients of their gateways are; see `core/sasl/delegation.py`.

A node signs with the secret that the metadata have, and checks what others have signed with it. A statement
counts for half a minute, and while what it was made by does: an API key that is there, a password that was
not changed, a token or a certificate whose time is not over. So whoever is revoked is out as soon as a node
has the metadata, and half a minute after a gateway has lost its node.
"""

import hashlib
import hmac
from collections.abc import Sequence

from penstock.core.ip_address import canonical_address
from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import NO_EXPIRY, AclOperation, ScramCredential, ScramMechanism
from penstock.core.model import MILLISECOND, Instant, ProtocolError, Timestamp
from penstock.core.sasl.delegation import (
    DelegatedLogin,
    DelegateExchange,
    Delegation,
    SignedDelegation,
    is_signed,
    read_statement,
    sign,
)
from penstock.core.sasl.exchange import Challenge, Refused, Step
from penstock.runtime import Clock

STATEMENT_MS = 30_000
# How far the clocks of two nodes may be apart.
CLOCK_SKEW_MS = 30_000
FINGERPRINT_BYTES = 16
NONCE_BYTES = 24


def fingerprint_of(credential: ScramCredential) -> bytes:
    """What tells a stored password from the one that follows it."""
    return hashlib.sha256(credential.stored_key).digest()[:FINGERPRINT_BYTES]


class Delegations:
    """Signs and checks statements, by the newest image that this node has."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.image = MetadataImage()

    def on_metadata(self, image: MetadataImage) -> None:
        self.image = image

    @property
    def has_secret(self) -> bool:
        """Whether statements can be made at all: a cluster gets its secret when it is first secured."""
        return bool(self.image.delegation_secret)

    def issue(
        self,
        user: str,
        host: str,
        *,
        ends: Timestamp = NO_EXPIRY,
        scope: Sequence[AclOperation] = (),
        api_key: str = "",
        fingerprint: bytes = b"",
    ) -> SignedDelegation:
        """Say who somebody is; there must be a secret."""
        assert self.has_secret
        host = canonical_address(host)
        return self._signed(Delegation(user, host, NO_EXPIRY, ends, tuple(scope), api_key, fingerprint))

    def renew(self, signed: SignedDelegation) -> SignedDelegation | str:
        """The same for longer, or why it does not count any more."""
        delegation = self.verify(signed)
        return delegation if isinstance(delegation, str) else self._signed(delegation)

    def verify(self, signed: SignedDelegation) -> Delegation | str:
        """What the statement says, or why it does not count."""
        if not is_signed(self.image.delegation_secret, signed):
            return "the statement is not signed by this cluster"
        try:
            delegation = read_statement(signed.statement)
        except ProtocolError as error:
            return str(error)
        return self.problem_with(delegation) or delegation

    def problem_with(self, delegation: Delegation) -> str | None:
        """Why a statement that is signed does not count."""
        now = self._clock.wall()
        if now >= delegation.expires + CLOCK_SKEW_MS:
            return f"{delegation.user}: the statement has expired"
        if NO_EXPIRY != delegation.ends <= now:
            return f"{delegation.user}: the login has expired"
        return self.revocation_of(delegation)

    def revocation_of(self, delegation: Delegation) -> str | None:
        """What was taken back since the statement was made."""
        if delegation.api_key:
            found = self.image.api_keys.get(delegation.api_key)
            if found is None or found.user != delegation.user:
                return f"the API key {delegation.api_key} was revoked"
        if delegation.fingerprint and not any(
            hmac.compare_digest(fingerprint_of(credential), delegation.fingerprint)
            for mechanism in ScramMechanism
            if (credential := self.image.credentials.get((delegation.user, mechanism))) is not None
        ):
            return f"{delegation.user}: the password was changed, or the user removed"
        return None

    def expiry_of(self, delegation: Delegation) -> Instant:
        """Until when a login by the statement counts, on the clock of deadlines."""
        left_ms = delegation.expires + CLOCK_SKEW_MS - self._clock.wall()
        if delegation.ends != NO_EXPIRY:
            left_ms = min(left_ms, delegation.ends - self._clock.wall())
        left_ms = min(left_ms, STATEMENT_MS + CLOCK_SKEW_MS)
        return Instant(self._clock.now() + left_ms * MILLISECOND)

    def login(self, nonce: bytes) -> "DelegateLogin":
        """Begin a login by a statement."""
        return DelegateLogin(self, DelegateExchange(self.image.delegation_secret, nonce, self.problem_with))

    def _signed(self, delegation: Delegation) -> SignedDelegation:
        expires = self._clock.wall() + STATEMENT_MS
        if delegation.ends != NO_EXPIRY:
            expires = min(expires, delegation.ends)
        return sign(
            self.image.delegation_secret,
            Delegation(
                delegation.user,
                delegation.host,
                Timestamp(expires),
                delegation.ends,
                delegation.scope,
                delegation.api_key,
                delegation.fingerprint,
            ),
        )


class DelegateLogin:
    """A login on the Kafka port."""

    def __init__(self, delegations: Delegations, exchange: DelegateExchange) -> None:
        self._delegations = delegations
        self._exchange = exchange

    def step(self, content: bytes) -> Step:
        found = self._exchange.step(content)
        if isinstance(found, Challenge | Refused):
            return found
        return DelegatedLogin(found.user, b"", self._delegations.expiry_of(found), found)
