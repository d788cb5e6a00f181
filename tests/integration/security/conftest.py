"""One secured node with a listener of each kind, and the certificates and tokens to reach it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from penstock.client import Endpoint
from penstock.client.access import AccessAdmin
from penstock.core.metadata.access import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.model import NodeId
from penstock.runtime.loop import MachineClock
from penstock.security.certificates import (
    CertificateFiles,
    create_authority,
    create_client_certificate,
    create_node_certificate,
)
from tests.compatibility.secured_node import can_log_in
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "penstock", "key-1"
PASSWORDS = {"admin": "admin-pw", "alice": "alice-pw", "bob": "bob-pw"}
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")


class Issuer:
    """Signs tokens, and publishes its keys in a file."""

    def __init__(self, jwks: Path) -> None:
        self._key = rsa.generate_private_key(65_537, 2_048)
        self.jwks = jwks
        public = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        jwks.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}]}))

    def token(self, user: str, **changes: Any) -> str:
        claims = {
            "sub": user,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": MachineClock().wall() // 1_000 + 600,
        } | changes
        return jwt.encode(claims, self._key, "RS256", {"kid": KEY_ID})


@dataclass(frozen=True, slots=True)
class Secured:
    """A secured node, and what its clients need."""

    node: NodeProcess
    addresses: dict[str, str]
    certificates: Path
    authority: Path
    alice: CertificateFiles
    issuer: Issuer

    def options(self, protocol: str, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Settings of librdkafka for a user."""
        options = {"security.protocol": protocol.lower()}
        if protocol.endswith("SSL"):
            options["ssl.ca.location"] = str(self.authority)
        if protocol.startswith("SASL"):
            options |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": PASSWORDS[user]}
        elif user == "alice":
            options |= {
                "ssl.certificate.location": str(self.alice.certificate),
                "ssl.key.location": str(self.alice.key),
            }
        return options

    def endpoint(self, user: str, protocol: str = "SASL_SSL") -> Endpoint:
        return Endpoint(self.addresses[protocol], self.options(protocol, user))


def allow(name: str, *operations: AclOperation, user: str = "alice", kind: ResourceType) -> list[AclBinding]:
    return [
        AclBinding(kind, PatternType.PREFIXED, name, f"User:{user}", "*", each, AclPermission.ALLOW)
        for each in operations
    ]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    root = tmp_path_factory.mktemp("secured")
    authority = create_authority(root / "certs", "tests").certificate
    files = create_node_certificate(root / "certs", NodeId(1), ["localhost", "127.0.0.1"])
    alice = create_client_certificate(root / "certs", "alice")
    issuer = Issuer(root / "jwks.json")
    password = root / "password"
    password.write_text(PASSWORDS["admin"] + "\n")
    password.chmod(0o600)
    listeners = ",".join(f"{protocol}={protocol}://127.0.0.1:0" for protocol in PROTOCOLS[1:])
    node = NodeProcess(
        root / "data",
        "listen.protocol=SASL_PLAINTEXT",
        f"listen.listeners={listeners}",
        "security.enabled=true",
        "security.super_users=admin",
        "security.admin_user=admin",
        f"security.admin_password_file={password}",
        "security.sasl.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        f"security.tls.certificate={files.certificate}",
        f"security.tls.key={files.key}",
        f"security.tls.authority={authority}",
        "security.tls.client_auth=want",
        "security.tls.principal_rules=RULE:^CN=(.+)$/$1/",
        f"security.oauth.jwks={issuer.jwks}",
        f"security.oauth.issuer={ISSUER}",
        f"security.oauth.audience={AUDIENCE}",
    ).start()
    try:
        addresses = {"SASL_PLAINTEXT": node.kafka, **node.ready["listeners"]}
        made = Secured(node, addresses, root / "certs", authority, alice, issuer)
        until(lambda: can_log_in(made.endpoint("admin")), "the administrator has its password")
        _set_up(AccessAdmin(made.endpoint("admin")))
        yield made
    finally:
        node.kill()


def _set_up(admin: AccessAdmin) -> None:
    """Alice has the topics and groups that begin with her name; Bob has nothing."""
    for user in ("alice", "bob"):
        admin.set_password(user, PASSWORDS[user])
    admin.create_acls(
        allow("alice", AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, kind=ResourceType.TOPIC)
        + allow("alice", AclOperation.READ, kind=ResourceType.GROUP)
    )
