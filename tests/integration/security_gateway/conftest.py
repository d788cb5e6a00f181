"""A secured node with its gateway, without TLS: REST, WebSocket and gRPC ask who is calling."""

import base64
import copy
import json
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
from penstock.security.audit.file import read_lines
from penstock.server.gateway.permissions import Needs, Right
from tests.integration.security.conftest import AUDIENCE, ISSUER, Issuer
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

ADMIN_PASSWORD = "admin-pw"
# Stands in a variable of the node.
ENVIRONMENT_SECRET = "hunter2-in-the-environment"


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

    def audited(self, **wanted: Any) -> list[dict[str, Any]]:
        """The lines of the audit log with these values."""
        lines = [json.loads(line) for line in read_lines(str(self.node.data_dir / "audit"))]
        return [line for line in lines if wanted.items() <= line.items()]

    def channel(self) -> Any:
        return grpc.insecure_channel(self.grpc)


class RightsMatrix:
    """Callers of a gateway with some of the rights that a route needs."""

    def __init__(self, gate: SecuredGateway, prefix: str, names: dict[str, str]) -> None:
        """`names` are what topics and groups begin with; users get names of their own."""
        self._gate, self._prefix, self._names = gate, prefix, names
        self._users = 0
        self.admins_key = gate.key("admin")
        self.nobodys_key = gate.key(f"{prefix}-no-rights")

    def create_topic(self, name: str) -> None:
        made = self._gate.ask("POST", "/v1/topics", self.admins_key, json={"name": name})
        assert made.status_code in (201, 409), made.text

    def naming(self, **names: str) -> "RightsMatrix":
        """The same, with rights to other names."""
        other = copy.copy(self)
        other._prefix = f"{self._prefix}-{'-'.join(names.values())}"
        other._names = {**self._names, **names}
        return other

    def key_with(self, needs: Needs) -> str:
        """Of a user who has these rights and no others."""
        return self._granted(needs, self._names)

    def key_elsewhere(self, needs: Needs) -> str:
        """Of a user who has these rights where they do not help."""
        return self._granted(needs, dict.fromkeys(self._names, "elsewhere"))

    def keys_lacking_one(self, needs: Needs) -> list[str]:
        """Of users who have these rights but for one, if there is more than one."""
        assert not isinstance(needs, str)
        if len(needs) == 1:
            return []
        return [self.key_with(tuple(each for each in needs if each != missing)) for missing in needs]

    def _granted(self, needs: Needs, names: dict[str, str]) -> str:
        assert not isinstance(needs, str)
        self._users += 1
        user = f"{self._prefix}-user-{self._users}"
        self._gate.admin.create_acls([_rule(user, right, names) for right in needs])
        return self._gate.key(user)


def _rule(user: str, right: Right, names: dict[str, str]) -> AclBinding:
    kind, operation = right.kind, right.operation
    if kind is ResourceType.CLUSTER:
        pattern, name = PatternType.LITERAL, "kafka-cluster"
    else:
        pattern, name = PatternType.PREFIXED, names[kind.name.lower()]
    return AclBinding(kind, pattern, name, f"User:{user}", "*", operation, AclPermission.ALLOW)


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
    node = NodeProcess(root / "data", *secured_settings(root, issuer), "security.audit.enabled=true")
    node.variables = {**node.variables, "SECRET_OF_THE_ENVIRONMENT": ENVIRONMENT_SECRET}
    node.start()
    try:
        made = SecuredGateway(node, issuer)
        until(lambda: can_log_in(made), "the administrator has its password")
        yield made
    finally:
        node.kill()


def can_log_in(made: SecuredGateway) -> bool:
    try:
        connect(made.endpoint("admin", ADMIN_PASSWORD)).close()
    except LoginFailed:
        return False
    return True
