"""One secured node with a listener of each kind, and everything that logs in to it.

The certificates are made by `penstock certs`, as its users make theirs; tokens are signed by an issuer whose
keys lie in a file. `alice` has the topics, groups and transactional ids that begin with her name, `bob` has
nothing, and whoever says nothing has the topics and groups that begin with `open`.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from penstock.client import Endpoint
from penstock.client.access import AccessAdmin
from penstock.client.connection import connect
from penstock.client.connection_security import LoginFailed
from penstock.core.metadata.access import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.runtime.loop import MachineClock
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

ISSUER, AUDIENCE = "https://issuer.example", "penstock"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = {"admin": "admin-pw", "alice": "alice-pw", "bob": "bob-pw"}
NOBODY = "ANONYMOUS"
EVERYTHING = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE)


class SigningKey(NamedTuple):
    """A key of an issuer, and what it is called in tokens."""

    id: str
    key: rsa.RSAPrivateKey

    @property
    def published(self) -> dict[str, str]:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {**public, "kid": self.id, "use": "sig", "alg": "RS256"}


class Issuer:
    """Signs tokens, and publishes its keys in a file: each before it signs with it, and for a while after."""

    def __init__(self, jwks: Path) -> None:
        self.jwks = jwks
        self._numbers = itertools.count(1)
        # The next one, the one that signs, the one before.
        self._keys: list[SigningKey] = [self._make()]
        self.rotate()

    def _make(self) -> "SigningKey":
        return SigningKey(f"key-{next(self._numbers)}", rsa.generate_private_key(65_537, 2_048))

    def rotate(self) -> None:
        """Sign with the next key from now on, and take back the one before the last."""
        self._keys = [self._make(), *self._keys[:2]]
        written = self.jwks.with_suffix(".new")
        written.write_text(json.dumps({"keys": [key.published for key in self._keys]}))
        written.rename(self.jwks)

    def token(self, user: str, seconds: int = 600, **changes: Any) -> str:
        """A token that counts for so long; a negative time makes one that did."""
        now = MachineClock().wall() // 1_000
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + seconds} | changes
        signing = self._keys[1]
        return jwt.encode(claims, signing.key, "RS256", {"kid": signing.id})


def java_token(directory: Path) -> Path:
    """Where Kafka's own client finds its token."""
    return directory / "token"


class CertificatePair(NamedTuple):
    """PEM files of whoever has a certificate."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Login:
    """How a client comes to a listener: what it says of itself, and whom it trusts."""

    address: str
    protocol: str
    authority: Path
    mechanism: str = ""
    user: str = ""
    # The password, or the token.
    secret: str = field(default="", repr=False)
    pair: CertificatePair | None = None
    # What the names of topics and groups begin with that it may use.
    stem: str = "open"

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    def librdkafka(self) -> dict[str, str]:
        """Settings for librdkafka; those of a token are the client's own."""
        settings = {"bootstrap.servers": self.address, "security.protocol": self.protocol}
        if self.is_encrypted:
            settings["ssl.ca.location"] = str(self.authority)
        if self.pair is not None:
            settings["ssl.certificate.location"] = str(self.pair.certificate)
            settings["ssl.key.location"] = str(self.pair.key)
        if self.mechanism:
            settings["sasl.mechanism"] = self.mechanism
        if self.mechanism in PASSWORD_MECHANISMS:
            settings |= {"sasl.username": self.user, "sasl.password": self.secret}
        return settings

    def java(self, directory: Path) -> dict[str, str]:
        """Settings for Kafka's own client, which reads the pair from one file."""
        settings = {"bootstrap.servers": self.address, "security.protocol": self.protocol}
        if self.is_encrypted:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        if self.pair is not None:
            both = directory / f"{self.pair.certificate.parent.name}-{self.pair.certificate.stem}-both.pem"
            both.write_text(self.pair.key.read_text() + self.pair.certificate.read_text())
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
        if self.mechanism:
            settings |= {"sasl.mechanism": self.mechanism, **self._jaas(directory)}
        return settings

    def _jaas(self, directory: Path) -> dict[str, str]:
        package = "org.apache.kafka.common.security"
        if self.mechanism in PASSWORD_MECHANISMS:
            module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            words = f'username="{self.user}" password="{self.secret}"'
            return {"sasl.jaas.config": f"{package}.{module} required {words};"}
        token = java_token(directory)
        token.write_text(self.secret)
        return {
            "sasl.jaas.config": f"{package}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{package}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.jwt.retriever.class": f"{package}.oauthbearer.FileJwtRetriever",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }


@dataclass(frozen=True)
class SecuredNode:
    """The node, and what its clients need."""

    node: NodeProcess
    root: Path
    addresses: dict[str, str]
    issuer: Issuer
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def authority(self) -> Path:
        return self.root / "certs" / "ca.pem"

    @property
    def strangers(self) -> Path:
        """An authority that the node has nothing to do with."""
        return self.root / "strangers" / "ca.pem"

    def pair(self, user: str, directory: str = "certs") -> CertificatePair:
        place = self.root / directory
        return CertificatePair(place / f"{user}.pem", place / f"{user}.key")

    def login(self, protocol: str, mechanism: str = "", user: str = "alice", **changes: Any) -> Login:
        """How a user comes that does it right, but for what is changed."""
        values: dict[str, Any] = {"address": self.addresses[protocol], "protocol": protocol}
        values |= {"authority": self.authority, "user": user if mechanism else "", "mechanism": mechanism}
        if mechanism in PASSWORD_MECHANISMS:
            values["secret"] = PASSWORDS.get(user, "")
        elif mechanism:
            values["secret"] = self.issuer.token(user)
        if mechanism:
            # Whoever has nothing is to be refused what somebody has.
            values["stem"] = "alice"
        return Login(**(values | changes))

    def endpoint(self, user: str = "admin") -> Endpoint:
        return Endpoint(self.addresses["SASL_SSL"], self.options(user))

    def options(self, user: str = "admin") -> dict[str, str]:
        # With a certificate as well, which some nodes insist on; who logs in is who they log in as.
        settings = self.login("SASL_SSL", "SCRAM-SHA-512", user, pair=self.pair("alice")).librdkafka()
        del settings["bootstrap.servers"]
        return settings

    @property
    def admin(self) -> AccessAdmin:
        return AccessAdmin(self.endpoint())

    def add_user(self, password: str) -> str:
        """Somebody new: failed logins make those that follow wait, for a user and from an address."""
        user = self.new_name()
        self.admin.set_password(user, password)
        return user

    def new_name(self) -> str:
        """A name that no user has had."""
        return f"user-{next(self._numbers)}"


def allow(
    user: str, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = True
) -> list[AclBinding]:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return [
        AclBinding(kind, pattern, name, f"User:{user}", "*", each, AclPermission.ALLOW) for each in operations
    ]


def penstock(*words: str) -> str:
    """Run a command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_certificates(root: Path) -> None:
    """An authority with certificates for a node and a client, and a client of another one."""
    for directory in ("certs", "strangers"):
        place = str(root / directory)
        penstock("certs", "init", "--dir", place)
        penstock("certs", "client", "alice", "--dir", place)
    penstock("certs", "node", "1", "--dir", str(root / "certs"))


@contextmanager
def secured_node(root: Path, *settings: str) -> Iterator[SecuredNode]:
    """A node in `root`, with users and rules; more settings may be given."""
    make_certificates(root)
    issuer = Issuer(root / "jwks.json")
    node = NodeProcess(root / "data", *security_settings(root, issuer), *settings).start()
    try:
        addresses = {"PLAINTEXT": node.kafka, **node.ready["listeners"]}
        made = SecuredNode(node, root, addresses, issuer)
        until(lambda: can_log_in(made.endpoint()), "the administrator has its password")
        _add_users(made)
        yield made
        assert node.stop() == 0, node.said()
    finally:
        node.kill()


def security_settings(root: Path, issuer: Issuer, first: str = "PLAINTEXT") -> Sequence[str]:
    """Settings of a node with a listener of each kind, and with those mechanisms that there are."""
    password = root / "password"
    password.write_text(PASSWORDS["admin"] + "\n")
    password.chmod(0o600)
    listeners = ",".join(f"{kind}={kind}://127.0.0.1:0" for kind in PROTOCOLS if kind != first)
    certs = root / "certs"
    return (
        f"listen.protocol={first}",
        f"listen.listeners={listeners}",
        "topics.partitions=1",
        "groups.offsets_partitions=4",
        "security.enabled=true",
        "security.super_users=admin",
        "security.admin_user=admin",
        f"security.admin_password_file={password}",
        f"security.sasl.mechanisms={','.join((*PASSWORD_MECHANISMS, 'OAUTHBEARER'))}",
        f"security.tls.certificate={certs / 'node-1.pem'}",
        f"security.tls.key={certs / 'node-1.key'}",
        f"security.tls.authority={certs / 'ca.pem'}",
        "security.tls.client_auth=want",
        "security.tls.principal_rules=RULE:^CN=(.+)$/$1/",
        f"security.oauth.jwks={issuer.jwks}",
        f"security.oauth.issuer={ISSUER}",
        f"security.oauth.audience={AUDIENCE}",
        "security.oauth.clock_skew_ms=1000",
    )


def can_log_in(endpoint: Endpoint) -> bool:
    """Whether the broker believes who we are."""
    try:
        connect(endpoint).close()
    except LoginFailed:
        return False
    return True


def _add_users(made: SecuredNode) -> None:
    for user in ("alice", "bob"):
        made.admin.set_password(user, PASSWORDS[user])
    for user, stem in (("alice", "alice"), (NOBODY, "open")):
        made.admin.create_acls(
            allow(user, ResourceType.TOPIC, stem, *EVERYTHING)
            + allow(user, ResourceType.GROUP, stem, AclOperation.READ)
            + allow(user, ResourceType.TRANSACTIONAL_ID, stem, AclOperation.WRITE)
        )
