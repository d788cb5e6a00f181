"""What strangers say about who they are: SASL, bearer tokens, API keys, headers and statements of nodes.

Whatever damage there is, a stranger stays nobody, or is the user whose credentials the input has.
"""

import base64
import hmac
import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode, der_to_raw_signature

from fuzz.harness import Target
from penstock.core.metadata import MetadataImage
from penstock.core.metadata.access import AclOperation, ApiKey, ScramCredential, ScramMechanism
from penstock.core.metadata.image import PersistentMap
from penstock.core.model import ProtocolError, Timestamp
from penstock.core.protocol import APIS, Message, RequestHeader, request_frame
from penstock.core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.core.sasl import DELEGATE, credential_of, read_oauth_message, read_plain_message
from penstock.core.sasl.delegation import Delegation, SignedDelegation, sign
from penstock.core.sasl.scram import ScramClient
from penstock.node.http_gate import GatewayLogins, NodeHttpGate
from penstock.runtime.memory_limits import RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import Part
from penstock.security import ANONYMOUS
from penstock.security.authenticator import MECHANISMS, PLAIN, SCRAM, Authenticator
from penstock.security.callers import CallerAuthenticator, CallerCredentials, api_key_digest
from penstock.security.delegations import Delegations
from penstock.security.key_uses import ApiKeyUses
from penstock.security.oauth import JwtVerifier, OAuthError, VerifiedToken, keys_in
from penstock.security.options import OAUTHBEARER, OAuthOptions
from penstock.server.gateway.callers import UnknownCaller, credentials_of
from penstock.server.gateway.logins import LOGIN, RENEW, LoginQuestion, RenewQuestion
from penstock.server.gateway.pages import STATEMENT_HEADER
from penstock.server.http import HttpRequest, HttpResponse
from penstock.server.http.server import headers_of
from penstock.server.kafka.backend import KafkaMetrics
from penstock.server.kafka.connection import ConnectionLimits, KafkaConnection
from penstock.server.kafka.connection_scheduler import ConnectionScheduler
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.handlers.sasl_authenticate import sasl_authenticate
from penstock.server.kafka.handlers.sasl_handshake import sasl_handshake
from penstock.server.kafka.listener import Listener, ListenerContext, ListenerSecurity
from penstock.server.kafka.router import Router
from penstock.server.kafka.slice_scheduler import SliceScheduler
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime

USER, PASSWORD, HOST = "alice,=é", "right", "127.0.0.1"
SECRET, GATEWAY_TOKEN = b"s" * 32, "gateway"
LATER_SECONDS = 4_000_000_000
API_KEY = "pk_abcdefgh_" + "k" * 32
FRAME_BYTES_MAX = 1 << 16
LONG_MS = 20_000


# --- the issuer of tokens ---


class Issuer:
    """Has keys that are always the same, and so are their signatures."""

    METHODS = ("EdDSA", "ES256")

    def __init__(self) -> None:
        self._ed = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
        self._ec = ec.derive_private_key(12_345, ec.SECP256R1())
        public = {
            "EdDSA": OKPAlgorithm.to_jwk(self._ed.public_key()),
            "ES256": ECAlgorithm.to_jwk(self._ec.public_key()),
            # Nobody has the other half of this one.
            "RS256": RSAAlgorithm.to_jwk(rsa.RSAPublicNumbers(65_537, 2**2_048 - 1_557).public_key()),
        }
        self.rows = [{**json.loads(row), "kid": name, "use": "sig"} for name, row in public.items()]
        self.jwks = json.dumps({"keys": self.rows}).encode()

    def sign(self, payload: bytes, method: str = "EdDSA") -> str:
        """A token with whatever payload."""
        head = json.dumps({"alg": method, "kid": method}).encode()
        said = b".".join(map(base64url_encode, (head, payload)))
        if method == "EdDSA":
            signature = self._ed.sign(said)
        else:
            how = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
            signature = der_to_raw_signature(self._ec.sign(said, how), ec.SECP256R1())
        return (said + b"." + base64url_encode(signature)).decode()


@cache
def issuer() -> Issuer:
    return Issuer()


def some_jwks(rng: random.Random) -> bytes:
    """A document with a key that counts, and others with fields that are missing or odd."""
    rows: list[Any] = [rng.choice(issuer().rows)]
    for row in rng.sample(issuer().rows, rng.randint(0, 3)):
        field = rng.choice(sorted(row))
        rows.append({**row, field: rng.choice(("", "AQAB", "AA", 5, None, [], {}, "P-384", "OKP", "RSA"))})
        if rng.random() < 0.3:
            del rows[-1][field]
    rng.shuffle(rows)
    return json.dumps({"keys": rows}).encode()


@cache
def tokens() -> JwtVerifier:
    """Checks tokens; its clock stands still, so that it reads its keys once."""
    timers = HandTimers()
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(issuer().jwks)
        verifier = JwtVerifier(hand_runtime(timers, HandSyncs()), OAuthOptions(file.name))
        verifier.start()
        timers.run()
    return verifier


def some_claims(rng: random.Random) -> bytes:
    claims: dict[str, Any] = {"sub": USER, "exp": LATER_SECONDS}
    more = {"iat": 5, "nbf": 1.5, "scope": "a b", "scp": ["a"], "aud": "x", "iss": "y", "jti": "1"}
    for name in rng.sample(sorted(more), rng.randint(0, 3)):
        claims[name] = more[name]
    return json.dumps(claims).encode()


def a_token(rng: random.Random) -> bytes:
    return issuer().sign(some_claims(rng), rng.choice(Issuer.METHODS)).encode()


def check_token(data: bytes) -> None:
    """Damage to a token that counts all the same has changed nothing that it says."""
    assert _verified(data.decode("latin-1")).user == USER


def check_signed_claims(data: bytes) -> None:
    """What an issuer has signed may be anything; its users log in on both kinds of servers, or do not."""
    token = issuer().sign(data)
    found = _verified(token)
    assert 0 < len(found.user) <= 1_000
    world = World()
    connection = world.connect()
    for frame in login_frames(OAUTHBEARER, f"n,,\x01auth=Bearer {token}\x01\x01".encode()):
        connection.receive(frame)
    assert connection.user == found.user
    world.identify(CallerCredentials(f"Bearer {token}"))


def _verified(token: str) -> VerifiedToken:
    found: list[VerifiedToken | str] = []
    tokens().verify(token, found.append)
    (outcome,) = found
    if isinstance(outcome, str):
        raise ProtocolError(outcome)
    return outcome


# --- a node that knows one user ---


@cache
def image() -> MetadataImage:
    credentials = PersistentMap[tuple[str, ScramMechanism], ScramCredential]()
    for mechanism in ScramMechanism:
        made = credential_of(USER, mechanism, PASSWORD, b"salt" * 4, 4_096)
        credentials = credentials.put((USER, mechanism), made)
    key = ApiKey("abcdefgh", USER, api_key_digest(API_KEY), Timestamp(1), scope=(AclOperation.READ,))
    return MetadataImage(
        credentials=credentials,
        api_keys=PersistentMap[str, ApiKey]().put(key.id, key),
        delegation_secret=SECRET,
    )


class World:
    """The logins of a node; its clock goes on when somebody is made to wait."""

    def __init__(self) -> None:
        self.timers = HandTimers()
        self.runtime = hand_runtime(self.timers, HandSyncs())
        self.delegations = Delegations(self.timers)
        self.authenticator = Authenticator(self.runtime, MECHANISMS, tokens(), self.delegations)
        self.callers = CallerAuthenticator(
            self.runtime, self.delegations, self.authenticator, tokens(), None, ApiKeyUses(self.timers)
        )
        self.delegations.on_metadata(image())
        self.authenticator.on_metadata(image())

    def connect(self) -> "Connection":
        return Connection(self)

    def identify(self, credentials: CallerCredentials) -> str:
        """The caller's name; ProtocolError if it is nobody."""
        found: list[object] = []
        self.callers.identify(credentials, HOST, found.append)
        self.timers.pass_ms(LONG_MS)
        (outcome,) = found
        if not isinstance(outcome, SignedDelegation):
            raise ProtocolError(str(outcome))
        delegation = self.delegations.verify(outcome)
        assert isinstance(delegation, Delegation), delegation
        return delegation.user


# --- SASL on the Kafka port ---


class Pipe:
    """A client that reads whatever it is told."""

    peer, local = f"{HOST}:5", (HOST, 9092)
    pending_bytes = sent_bytes = held_bytes = 0

    def __init__(self) -> None:
        self.told = b""
        self.is_paused = self.is_closed = False

    def account(self, moved: Callable[[int], None]) -> None:
        pass

    def write(self, parts: list[Part]) -> None:
        self.told += b"".join(bytes(cast("bytes", part)) for part in parts)

    def read(self) -> None:
        pass

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True


@cache
def sasl_routes() -> Router:
    router = Router()
    router.handles(SaslHandshakeRequest)(sasl_handshake)
    router.handles(SaslAuthenticateRequest)(sasl_authenticate)
    return router


class Connection:
    """A connection to a listener with SASL, whose clients can do nothing but log in."""

    def __init__(self, world: World) -> None:
        self._timers = world.timers
        self._errors: list[Exception] = []
        self.pipe = Pipe()
        self._connection = self._listener(world).accept(cast("Any", self.pipe))
        assert isinstance(self._connection, KafkaConnection)

    def _listener(self, world: World) -> Listener:
        timers, runtime = world.timers, world.runtime
        serving = ListenerContext(
            backend=cast("Any", None),
            authorizer=None,
            routes=sasl_routes(),
            runtime=runtime,
            metrics=KafkaMetrics(),
            fetch_sessions=FetchSessionCache(timers, cast("Any", None)),
            request_memory=RequestMemoryLimit(timers.soon),
            response_memory=ResponseMemoryLimit(timers.soon, 1 << 20),
            scheduler=ConnectionScheduler(timers.soon, timers.now),
            slices=SliceScheduler(timers.now, timers.soon),
            report=self._errors.append,
            limits=ConnectionLimits(frame_bytes_max=FRAME_BYTES_MAX),
        )
        security = ListenerSecurity(authenticator=world.authenticator, reauthenticate_ms=60_000)
        return Listener("SASL_PLAINTEXT", serving, security)

    def receive(self, stream: bytes) -> None:
        """Take all of it, as far as the connection stays open; what is not a ProtocolError is a bug."""
        connection = self._connection
        assert isinstance(connection, KafkaConnection)
        while stream and self._can_read():
            buffer = connection.get_buffer()
            if buffer is None:
                self._timers.run()
                continue
            count = min(len(buffer), len(stream))
            buffer[:count], stream = stream[:count], stream[count:]
            connection.buffer_updated(count)
            self._timers.run()
        if self._errors:
            raise self._errors[0]

    def _can_read(self) -> bool:
        if self.pipe.is_paused:
            # It waits for an answer that is delayed, and nothing else can happen.
            self._timers.pass_ms(LONG_MS)
        return not self.pipe.is_paused and not self.pipe.is_closed

    @property
    def user(self) -> str:
        connection = self._connection
        assert isinstance(connection, KafkaConnection)
        principal = connection.session.principal
        if principal == ANONYMOUS:
            raise ProtocolError("it is nobody")
        return principal.name


def frame_of(message: Message, version: int, number: int = 1) -> bytes:
    key = message.__schema__.api_key
    assert key is not None
    return bytes(request_frame(APIS[key], RequestHeader(key, version, number, "fuzz"), message))


def login_frames(mechanism: str, *messages: bytes) -> list[bytes]:
    shake = frame_of(SaslHandshakeRequest(mechanism=mechanism), 1)
    return [shake, *(frame_of(SaslAuthenticateRequest(auth_bytes=each), 2) for each in messages)]


def answer_in(told: bytes) -> bytes:
    """What the mechanism said last: the frames of a node that answers SaslAuthenticate 2."""
    size = int.from_bytes(told[:4], "big")
    while len(told) > 4 + size:
        told = told[4 + size :]
        size = int.from_bytes(told[:4], "big")
    # Correlation id, tagged fields, error code, null message; then compact bytes of less than 127.
    length = told[12] - 1
    return told[13 : 13 + length]


def a_login(rng: random.Random) -> bytes:
    """A whole login that succeeds, as a stream of frames."""
    mechanism = rng.choice((*MECHANISMS, DELEGATE))
    return b"".join(_login(mechanism, rng))


def _login(mechanism: str, rng: random.Random) -> list[bytes]:
    if mechanism == PLAIN:
        return login_frames(mechanism, b"\x00".join((b"", USER.encode(), PASSWORD.encode())))
    if mechanism == OAUTHBEARER:
        return login_frames(mechanism, b"n,,\x01auth=Bearer " + a_token(rng) + b"\x01\x01")
    # Nonces of the node count from one, so that its answer is known in advance.
    connection = World().connect()
    prove: Callable[[bytes], bytes]
    if mechanism == DELEGATE:
        signed = a_statement(rng)
        frames, prove = login_frames(mechanism, signed.statement), signed.proof
    else:
        client = ScramClient(SCRAM[mechanism], USER, PASSWORD, f"{rng.getrandbits(64):x}")
        frames, prove = login_frames(mechanism, client.first()), client.last
    connection.receive(b"".join(frames))
    return [*frames, frame_of(SaslAuthenticateRequest(auth_bytes=prove(answer_in(connection.pipe.told))), 2)]


def run_login(stream: bytes) -> None:
    """A damaged login is refused, or is the user's."""
    connection = World().connect()
    connection.receive(stream)
    assert connection.user == USER


# --- single messages ---


def a_scram_login(rng: random.Random) -> bytes:
    """Both messages of the client, one on each line."""
    mechanism = rng.choice(sorted(SCRAM))
    client = ScramClient(SCRAM[mechanism], USER, PASSWORD, f"{rng.getrandbits(64):x}")
    login = World().authenticator.login(mechanism, HOST)
    assert login is not None
    told: list[Any] = []
    login.step(client.first(), told.append)
    return b"\n".join((mechanism.encode(), client.first(), client.last(told[0].content)))


def run_scram_login(data: bytes) -> None:
    name, _, messages = data.partition(b"\n")
    mechanism = name.decode("latin-1")
    login = World().authenticator.login(mechanism, HOST) if mechanism in SCRAM else None
    if login is None:
        raise ProtocolError("no such mechanism")
    told: list[Any] = []
    for message in messages.split(b"\n"):
        login.step(message, told.append)
    if getattr(told[-1], "user", "") == "" or not hasattr(told[-1], "content"):
        raise ProtocolError("it is nobody")
    assert told[-1].user == USER


def a_challenge(rng: random.Random) -> bytes:
    salt = base64.b64encode(rng.randbytes(16)).decode()
    return f"r=client{rng.getrandbits(64):x},s={salt},i=4096".encode()


def answer_challenge(data: bytes) -> None:
    """What a server may say to the client's side; it is refused with a ValueError."""
    client = ScramClient(ScramMechanism.SCRAM_SHA_256, USER, PASSWORD, "client")
    client.last(data)
    assert not client.is_verified(data)


def a_plain_message(rng: random.Random) -> bytes:
    return b"\x00".join((rng.choice((b"", USER.encode())), USER.encode(), PASSWORD.encode()))


def read_plain(data: bytes) -> None:
    found = read_plain_message(data)
    assert data.endswith(b"\x00".join((b"", found.user.encode(), found.password.encode())))


def an_oauth_message(rng: random.Random) -> bytes:
    extensions = "".join(f"name{n}=value\x01" for n in range(rng.randint(0, 3)))
    who = rng.choice(("", "a=alice"))
    return f"n,{who},\x01auth=Bearer to.ke.n\x01{extensions}\x01".encode()


def read_oauth(data: bytes) -> None:
    found = read_oauth_message(data)
    assert found.token.encode() in data
    assert "auth" not in dict(found.extensions)


# --- statements of nodes ---


def a_statement(rng: random.Random) -> SignedDelegation:
    scope = tuple(rng.sample(list(AclOperation), rng.randint(0, 3)))
    expires = Timestamp(HandTimers().wall() + rng.randint(1, 30_000))
    return sign(SECRET, Delegation(USER, HOST, expires, scope=scope))


def read_signed_statement(data: bytes) -> None:
    """Whatever a node has signed, in any version of it: it counts, or it does not."""
    world = World()
    login = world.delegations.login(b"nonce")
    login.step(data)
    key = hmac.digest(SECRET, data, "sha256")
    step = login.step(SignedDelegation(data, key).proof(b"nonce"))
    if not hasattr(step, "delegation"):
        raise ProtocolError(str(step))
    renewed = world.delegations.renew(SignedDelegation(data, key))
    assert isinstance(renewed, SignedDelegation), renewed


# --- headers, and the questions of a gateway ---


def some_headers(rng: random.Random) -> bytes:
    """A request's head that says who is calling."""
    signed = a_statement(rng)
    statement = b".".join(map(base64.b64encode, (signed.statement, signed.key))).decode()
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    said = (
        f"Authorization: Bearer {API_KEY}",
        f"X-API-Key: {API_KEY}",
        f"authorization: bearer {a_token(rng).decode()}",
        f"Authorization: Basic {basic}",
        f"{STATEMENT_HEADER}: {statement}",
    )
    lines = ["GET /metrics HTTP/1.1", "Host: x", rng.choice(said), "Accept: */*"]
    return "\r\n".join(lines).encode()


def admit(head: bytes) -> None:
    """By the node's own pages, and by a gateway."""
    world = World()
    gate = NodeHttpGate(world.callers, world.delegations, cast("Any", None))
    found: list[object] = []
    headers = headers_of(head)
    gate.admit(headers, HOST, None, found.append)
    world.timers.pass_ms(LONG_MS)
    (outcome,) = found
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    try:
        said = credentials_of(pairs, HOST)
        assert len(f"{said!r}") < 100
    except UnknownCaller:
        assert isinstance(outcome, HttpResponse)
    if isinstance(outcome, HttpResponse):
        raise ProtocolError(str(outcome.status))


def a_question(rng: random.Random) -> bytes:
    """What a gateway asks, with the path in front of the body."""
    if rng.random() < 0.3:
        signed = a_statement(rng)
        question: object = RenewQuestion(GATEWAY_TOKEN, signed.statement, signed.key)
        return RENEW.encode() + b"\n" + msgspec.json.encode(question)
    said = rng.choice((f"Bearer {API_KEY}", f"Bearer {a_token(rng).decode()}"))
    return LOGIN.encode() + b"\n" + msgspec.json.encode(LoginQuestion(GATEWAY_TOKEN, HOST, said))


def answer_question(data: bytes) -> None:
    path, _, body = data.partition(b"\n")
    world = World()
    logins = GatewayLogins(GATEWAY_TOKEN, world.callers, world.delegations, ApiKeyUses(world.timers))
    found: list[HttpResponse] = []
    logins(HttpRequest(path.decode("latin-1"), body), found.append)
    world.timers.pass_ms(LONG_MS)
    (answer,) = found
    if answer.status != 200:
        raise ProtocolError(str(answer.status))


REFUSED = (ProtocolError,)
# A node with its logins, and a connection with its listener, are made for each input.
WORLD_FACTOR = 512
TARGETS = (
    Target("login.sasl-frames", a_login, run_login, REFUSED, WORLD_FACTOR),
    Target("login.scram", a_scram_login, run_scram_login, REFUSED, WORLD_FACTOR),
    Target("login.scram-client", a_challenge, answer_challenge, (ValueError,)),
    Target("login.plain", a_plain_message, read_plain, REFUSED),
    Target("login.oauthbearer", an_oauth_message, read_oauth, REFUSED),
    Target("login.jwt", a_token, check_token, REFUSED),
    Target("login.jwt.behind-the-signature", some_claims, check_signed_claims, REFUSED, WORLD_FACTOR),
    Target("login.jwks", some_jwks, keys_in, (OAuthError,)),
    Target(
        "login.statement.behind-the-signature",
        lambda rng: a_statement(rng).statement,
        read_signed_statement,
        REFUSED,
        WORLD_FACTOR,
    ),
    Target("login.http-headers", some_headers, admit, REFUSED, WORLD_FACTOR),
    Target("login.gateway-question", a_question, answer_question, REFUSED, WORLD_FACTOR),
)
