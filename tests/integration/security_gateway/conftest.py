"""A secured node with its gateway, without TLS: REST, WebSocket and gRPC ask who is calling."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from penstock.client import Endpoint
from penstock.client.access import AccessAdmin
from penstock.client.connection import connect
from penstock.client.connection_security import LoginFailed
from penstock.core.metadata.access import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tests.integration.security.conftest import AUDIENCE, ISSUER, Issuer
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

ADMIN_PASSWORD = "admin-pw"


def allow(user: str, kind: ResourceType, name: str, *operations: AclOperation) -> list[AclBinding]:
    return [
        AclBinding(kind, PatternType.LITERAL, name, f"User:{user}", "*", each, AclPermission.ALLOW)
        for each in operations
    ]


@dataclass
class SecuredGateway:
    """A node, and what its callers need."""

    node: NodeProcess
    issuer: Issuer

    @property
    def url(self) -> str:
        return f"http://{self.node.ready['http']}"

    @property
    def grpc(self) -> str:
        return str(self.node.ready["grpc"])

    @property
    def admin(self) -> AccessAdmin:
        return AccessAdmin(self.endpoint("admin", ADMIN_PASSWORD))

    def endpoint(self, user: str, password: str) -> Endpoint:
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}
        return Endpoint(self.node.kafka, {"security.protocol": "sasl_plaintext", **login})

    def key(self, user: str, **choices: Any) -> str:
        """The secret of a new API key."""
        return self.admin.create_api_key(user, **choices).secret

    def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        headers |= more.pop("headers", {})
        return httpx.request(method, self.url + path, headers=headers, timeout=40, **more)

    def channel(self) -> Any:
        return grpc.insecure_channel(self.grpc)


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def secured_settings(root: Path, issuer: Issuer) -> list[str]:
    password = root / "password"
    password.write_text(ADMIN_PASSWORD + "\n")
    password.chmod(0o600)
    return [
        "rest.enabled=true",
        "listen.protocol=SASL_PLAINTEXT",
        "security.enabled=true",
        "security.super_users=admin",
        "security.admin_user=admin",
        f"security.admin_password_file={password}",
        "security.sasl.mechanisms=SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        f"security.oauth.jwks={issuer.jwks}",
        f"security.oauth.issuer={ISSUER}",
        f"security.oauth.audience={AUDIENCE}",
        "topics.partitions=1",
    ]


@pytest.fixture(scope="package")
def secured_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    root = tmp_path_factory.mktemp("gateway")
    issuer = Issuer(root / "jwks.json")
    node = NodeProcess(root / "data", *secured_settings(root, issuer)).start()
    try:
        made = SecuredGateway(node, issuer)
        until(lambda: _can_log_in(made), "the administrator has its password")
        yield made
    finally:
        node.kill()


def _can_log_in(made: SecuredGateway) -> bool:
    try:
        connect(made.endpoint("admin", ADMIN_PASSWORD)).close()
    except LoginFailed:
        return False
    return True
