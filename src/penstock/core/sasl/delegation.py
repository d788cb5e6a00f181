"""PENSTOCK-DELEGATE: a node says who a client of its gateway is, and every node of the cluster believes it.

    statement   user, host, scope, API key, until when            anybody may read it
    key         HMAC(the cluster's secret, statement)             the gateway gets it from its node

    client  statement
    server  nonce
    client  HMAC(key, nonce statement)

Who has the secret can make the key of any statement; who has a key can use its statement, for as long as
that counts, and no other. What goes over the wire is of no use to whoever reads it there: the proof is for
one nonce. Whether the statement still counts (its API key may be revoked) is asked of `problem_with`.
"""

import hmac
from collections.abc import Callable

import msgspec

from penstock.core.metadata.access import NO_EXPIRY, AclOperation
from penstock.core.model import ProtocolError, Timestamp
from penstock.core.sasl.exchange import Challenge, LoggedIn, Refused
from penstock.core.values import dataclass

DELEGATE = "PENSTOCK-DELEGATE"
STATEMENT_BYTES_MAX = 8_192
_PROOF = b"proof"


class Delegation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who somebody is, by the word of a node.

    `expires` ends the statement; whoever is still there then gets another. `ends` is when what it was made
    by does: an API key, a token, a certificate. `fingerprint` is that of the stored password, so that a
    changed one ends what the old one began.
    """

    user: str
    host: str
    expires: Timestamp
    ends: Timestamp = NO_EXPIRY
    scope: tuple[AclOperation, ...] = ()
    api_key: str = ""
    fingerprint: bytes = b""

    def is_same_caller(self, other: "Delegation") -> bool:
        """Whether the other statement is a later one about the same."""
        return (self.user, self.host, self.scope, self.api_key) == (
            other.user,
            other.host,
            other.scope,
            other.api_key,
        )


@dataclass(frozen=True, slots=True)
class DelegatedLogin(LoggedIn):
    """The client is this user by the word of a node, which says more about it."""

    delegation: Delegation | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Delegation)


class SignedDelegation(msgspec.Struct, frozen=True):
    """A statement and its key."""

    statement: bytes
    key: bytes

    def __repr__(self) -> str:
        return "SignedDelegation()"

    def proof(self, nonce: bytes) -> bytes:
        """What a server wants to see that has sent this nonce."""
        return _proof(self.key, nonce, self.statement)


def sign(secret: bytes, delegation: Delegation) -> SignedDelegation:
    statement = _encoder.encode(delegation)
    return SignedDelegation(statement, hmac.digest(secret, statement, "sha256"))


def read_statement(statement: bytes) -> Delegation:
    """What a statement says, true or not; ProtocolError if it is none."""
    if len(statement) > STATEMENT_BYTES_MAX:
        raise ProtocolError(f"a statement of {len(statement)} bytes")
    try:
        return _decoder.decode(statement)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a statement: {error}") from None


def is_signed(secret: bytes, signed: SignedDelegation) -> bool:
    """Whether the key is that of the statement."""
    return bool(secret) and hmac.compare_digest(hmac.digest(secret, signed.statement, "sha256"), signed.key)


class DelegateExchange:
    """One login by a statement. `problem_with` returns why the statement does not count, or None."""

    def __init__(self, secret: bytes, nonce: bytes, problem_with: Callable[[Delegation], str | None]) -> None:
        self._secret = secret
        self._nonce = nonce
        self._problem_with = problem_with
        self._statement: bytes | None = None

    def step(self, content: bytes) -> Challenge | Delegation | Refused:
        """What comes of the client's next message."""
        if not self._secret:
            return Refused("the cluster has no secret to check statements with")
        if self._statement is None:
            if len(content) > STATEMENT_BYTES_MAX:
                return Refused(f"a statement of {len(content)} bytes")
            self._statement = content
            return Challenge(self._nonce)
        key = hmac.digest(self._secret, self._statement, "sha256")
        if not hmac.compare_digest(_proof(key, self._nonce, self._statement), content):
            return Refused("the statement is not proved")
        try:
            delegation = read_statement(self._statement)
        except ProtocolError as error:
            return Refused(str(error))
        problem = self._problem_with(delegation)
        return delegation if problem is None else Refused(problem, delegation.user)


def _proof(key: bytes, nonce: bytes, statement: bytes) -> bytes:
    return hmac.digest(key, _PROOF + nonce + statement, "sha256")
