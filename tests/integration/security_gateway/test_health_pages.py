"""What the pages about health tell strangers of a secured node, and those who may describe the cluster."""

import shutil
from pathlib import Path
from typing import Any

import httpx

from penstock.core.metadata.access import AclOperation, ResourceType
from tests.integration.security.conftest import Issuer
from tests.integration.security_gateway.conftest import (
    SecuredGateway,
    allow,
    basic,
    can_log_in,
    secured_settings,
)
from tests.support.clusters import until
from tests.support.nodes import NodeProcess


def test_names_are_for_those_who_may_describe_the_cluster_and_strangers_get_a_count(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    node = NodeProcess(tmp_path / "data", *secured_settings(tmp_path, issuer), "security.audit.enabled=true")
    node.start()
    try:
        gate = SecuredGateway(node, issuer)
        until(lambda: can_log_in(gate), "the administrator has its password")
        made = gate.ask("POST", "/v1/topics", gate.key("admin"), json={"name": "secret-plans"})
        assert made.status_code == 201
        scraper, nobody = gate.key("scraper"), gate.key("nobody")
        gate.admin.create_acls(allow("scraper", ResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE))
        assert node.stop() == 0
        shutil.rmtree(node.data_dir / "logs" / "secret-plans")
        node.start()
        until(lambda: can_log_in(gate), "the node knows its users")

        for base in (gate.url, f"http://{node.ready['metrics']}"):
            for page, status in (("/ready", "ready"), ("/health", "ok")):

                def shown(headers: dict[str, str], url: str = base + page) -> dict[str, Any]:
                    response = httpx.get(url, headers=headers, timeout=40)
                    assert response.status_code == 200
                    return dict(response.json())

                counted = {"status": status, "degraded": 1}
                assert shown({}) == counted
                assert shown({"x-api-key": nobody}) == counted
                assert shown({"x-api-key": nobody + "x"}) == counted
                assert shown(basic("scraper", "guess")) == counted
                named = shown({"x-api-key": scraper})
                assert named["status"] == status
                (line,) = named["degraded"]
                assert line.startswith("secret-plans/0: offline: ")
        assert gate.audited(principal="User:nobody", decision="refused") == []
    finally:
        node.kill()
