"""SCRAM (RFC 5802): a password proved without being said.

    client  n,,n=alice,r=<nonce>
    server  r=<nonce><more>,s=<salt>,i=4096
    client  c=biws,r=<nonce><more>,p=<proof>
    server  v=<signature>

The server keeps, of a salted password, H(client key) and the server key: the proof is the client key,
masked by a signature over all four messages. A user that does not exist gets a salt as well, always the
same, and is refused at the end like one with a wrong password.

Old releases of librdkafka (seen: 2.0.2, of Debian 12 and kcat) write their nonce twice in the last message,
`r=<nonce><nonce><more>`. That is let through, and nothing else is: the proof is over the server's message
with the server's nonce, so that it is as fresh as any other.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from penstock.core.metadata.access import ScramCredential, ScramMechanism
from penstock.core.sasl.exchange import Challenge, LoggedIn, Refused, Step

MESSAGE_BYTES_MAX = 4_096
ITERATIONS = 4_096
# A server that asks for more wants to keep its clients busy, one that asks for less to guess what it hears.
CLIENT_ITERATIONS_MIN, CLIENT_ITERATIONS_MAX = 4_096, 1_000_000
_CLIENT_KEY, _SERVER_KEY = b"Client Key", b"Server Key"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """What a client may tell of a password instead of it. Takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    user: str, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS
) -> ScramCredential:
    """What a broker keeps of a password. Takes milliseconds."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of_salted(user, mechanism, salted, salt, iterations)


def credential_of_salted(
    user: str, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The same of a password that was salted by the client, which Kafka's tools do."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted, _CLIENT_KEY, name)
    stored_key = hashlib.new(name, client_key).digest()
    server_key = hmac.digest(salted, _SERVER_KEY, name)
    return ScramCredential(user, mechanism, salt, iterations, stored_key, server_key)


def is_password(credential: ScramCredential, password: str) -> bool:
    """Whether the credential is of this password. Takes milliseconds, whatever the answer."""
    again = credential_of(
        credential.user, credential.mechanism, password, credential.salt, credential.iterations
    )
    return hmac.compare_digest(again.stored_key, credential.stored_key)


def decoy_credential(
    user: str, mechanism: ScramMechanism, salt: bytes, iterations: int = ITERATIONS
) -> ScramCredential:
    """A credential that no password is right for."""
    nothing = bytes(mechanism.key_bytes)
    return ScramCredential(user, mechanism, salt, iterations, nothing, nothing)


class ScramExchange:
    """One login. `credential` returns what is kept of a user, or a decoy; `nonce` is random and printable."""

    def __init__(
        self, mechanism: ScramMechanism, nonce: str, credential: Callable[[str], ScramCredential]
    ) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._credential_of = credential
        self._credential: ScramCredential | None = None
        self._client_nonce = ""
        self._header = b""
        self._said = b""

    @property
    def user(self) -> str:
        """Who the client wants to be and has to prove next; empty before it has said so."""
        return "" if self._credential is None else self._credential.user

    def step(self, content: bytes) -> Step:
        """What comes of the client's next message."""
        if len(content) > MESSAGE_BYTES_MAX:
            return Refused(f"a SCRAM message of {len(content)} bytes")
        return self._first(content) if self._credential is None else self._last(self._credential, content)

    def _first(self, content: bytes) -> Step:
        # The header ends with the second comma; it asks for no channel binding.
        binding, _, rest = content.partition(b",")
        authorization, _, bare = rest.partition(b",")
        try:
            user, nonce = _user_and_nonce(bare)
            authorization_id = _authorization_id(authorization)
        except ValueError as wrong:
            return Refused(f"not a first SCRAM message: {wrong}")
        if binding not in (b"n", b"y"):
            return Refused("the client wants channel binding")
        if authorization_id not in ("", user):
            return Refused(f"{user} wants to act as {authorization_id}")
        self._header = binding + b"," + authorization + b","
        credential = self._credential = self._credential_of(user)
        self._client_nonce, self._nonce = nonce, nonce + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}".encode()
        self._said = bare + b"," + answer
        return Challenge(answer)

    def _last(self, credential: ScramCredential, content: bytes) -> Step:
        without_proof, _, proof_text = content.rpartition(b",p=")
        fields = without_proof.split(b",")
        try:
            proof = base64.b64decode(proof_text, validate=True)
            header = base64.b64decode(fields[0].removeprefix(b"c="), validate=True)
        except binascii.Error:
            return Refused("not a last SCRAM message")
        if not fields[0].startswith(b"c=") or header != self._header:
            return Refused("the client's header is not the one it began with")
        agreed = self._nonce.encode()
        if fields[1:2] not in ([b"r=" + agreed], [b"r=" + self._client_nonce.encode() + agreed]):
            return Refused("the nonce is not the one that was agreed on")
        name = self._mechanism.hash_name
        said = self._said + b"," + without_proof
        signature = hmac.digest(credential.stored_key, said, name)
        if len(proof) != len(signature):
            return Refused("the proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            return Refused(f"{credential.user}: unknown user or wrong password", credential.user)
        if self._credential_of(credential.user) != credential:
            # The client has taken its time: this is not the password any more.
            return Refused(f"{credential.user}: the password was changed during the login", credential.user)
        verifier = base64.b64encode(hmac.digest(credential.server_key, said, name))
        return LoggedIn(credential.user, b"v=" + verifier)


def _user_and_nonce(bare: bytes) -> tuple[str, str]:
    name, nonce, *extensions = bare.decode().split(",")
    if not name.startswith("n=") or not nonce.startswith("r="):
        raise ValueError("it has a name and a nonce")
    if any(extension.startswith("tokenauth=true") for extension in extensions):
        raise ValueError("delegation tokens are not supported")
    user = _unescaped(name[2:])
    if not user or not nonce[2:].isascii() or not nonce[2:].isprintable():
        raise ValueError("it has a name and a printable nonce")
    return user, nonce[2:]


def _authorization_id(part: bytes) -> str:
    if part and not part.startswith(b"a="):
        raise ValueError("its second part names who the client wants to be")
    return _unescaped(part.decode()[2:])


def _unescaped(name: str) -> str:
    """Commas and equal signs of names are written as =2C and =3D, and nothing else is."""
    plain = name.replace("=2C", ",")
    if "=" in plain.replace("=3D", ""):
        raise ValueError("a name is not escaped")
    return plain.replace("=3D", "=")


class ScramClient:
    """The client's side of a login; `nonce` is random and printable."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}".encode()
        self._verifier = b""

    def first(self) -> bytes:
        return b"n,," + self._bare

    def last(self, challenge: bytes) -> bytes:
        """The proof that the server asks for; ValueError if it asks for something else."""
        fields = dict(part.split("=", 1) for part in challenge.decode().split(",") if "=" in part)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except KeyError:
            raise ValueError(f"the server says {fields.get('e', 'nothing that SCRAM knows')}") from None
        if not nonce.startswith(self._nonce) or not (
            CLIENT_ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX
        ):
            raise ValueError("the server's first message is not one of SCRAM")
        name = self._mechanism.hash_name
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = hmac.digest(salted, _CLIENT_KEY, name)
        without_proof = f"c=biws,r={nonce}".encode()
        said = self._bare + b"," + challenge + b"," + without_proof
        signature = hmac.digest(hashlib.new(name, client_key).digest(), said, name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, _SERVER_KEY, name)
        self._verifier = b"v=" + base64.b64encode(hmac.digest(server_key, said, name))
        return without_proof + b",p=" + base64.b64encode(proof)

    def is_verified(self, final: bytes) -> bool:
        """Whether the server knows of the password as well."""
        return hmac.compare_digest(final.split(b",")[0], self._verifier)
