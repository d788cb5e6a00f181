"""Who callers of a gateway are, and that rules decide what they may."""

import httpx
import pytest

from penstock.client import ClientError
from penstock.core.metadata.access import AclOperation, ResourceType
from tests.integration.security_gateway.conftest import SecuredGateway, allow, basic

TOPIC = ResourceType.TOPIC


def test_an_api_key_publishes_what_its_users_rules_allow(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    key = gate.key("alice")
    message = {"value": "hello"}

    assert gate.ask("POST", "/v1/topics/orders/publish", json=message).status_code == 401
    denied = gate.ask("POST", "/v1/topics/orders/publish", key, json=message)
    assert denied.status_code == 403, denied.text
    assert denied.json()["code"] == "TOPIC_AUTHORIZATION_FAILED"

    gate.admin.create_acls(allow("alice", TOPIC, "orders", AclOperation.WRITE, AclOperation.CREATE))
    for _ in range(3):
        stored = gate.ask("POST", "/v1/topics/orders/publish", key, json=message)
        assert stored.status_code == 200, stored.text


def test_a_revoked_key_and_a_removed_user_are_nobody_at_once(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    gate.admin.create_acls(allow("carol", TOPIC, "*", AclOperation.DESCRIBE))
    made = gate.admin.create_api_key("carol")
    assert gate.ask("GET", "/v1/topics", made.secret).status_code == 200
    gate.admin.delete_api_key(made.id)
    assert gate.ask("GET", "/v1/topics", made.secret).status_code == 401
    with pytest.raises(ClientError, match="no API key"):
        gate.admin.delete_api_key(made.id)

    gate.admin.set_password("carol", "carol-pw")
    key = gate.key("carol")
    assert gate.ask("GET", "/v1/topics", key).status_code == 200
    assert gate.ask("GET", "/v1/topics", headers=basic("carol", "carol-pw")).status_code == 200
    gate.admin.delete_user("carol")
    assert gate.ask("GET", "/v1/topics", key).status_code == 401
    assert gate.ask("GET", "/v1/topics", headers=basic("carol", "carol-pw")).status_code == 401


def test_a_scope_narrows_what_a_key_is_for(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    key = gate.key("admin", scope=[AclOperation.DESCRIBE])
    assert gate.ask("GET", "/v1/topics", key).status_code == 200
    assert gate.ask("POST", "/v1/topics", key, json={"name": "scoped"}).status_code == 403


def test_tokens_passwords_and_both_headers_are_identities(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    token = gate.issuer.token("admin")
    key = gate.key("admin")
    assert gate.ask("GET", "/v1/admin/cluster", token).status_code == 200
    assert gate.ask("GET", "/v1/admin/cluster", headers={"x-api-key": key}).status_code == 200
    assert gate.ask("GET", "/v1/admin/cluster", headers=basic("admin", "admin-pw")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer pk_0123456789abcdef_" + "x" * 43},
        {"authorization": "Bearer not.a.token"},
        {"authorization": "Basic !!!"},
        {"authorization": "Negotiate abc"},
        {"x-api-key": "admin"},
        {"x-forwarded-for": "127.0.0.1", "x-forwarded-user": "admin"},
        {"penstock-statement": "AAAA.AAAA"},
        # Headers may have more letters than base64, and more than ASCII.
        {"authorization": b"Basic \xe9"},
        {"authorization": b"Bearer \xe9.\xff.\x80"},
        {"x-api-key": b"\xe9"},
        {"penstock-statement": b"\xe9.\xe9"},
    ],
)
def test_who_is_nobody_is_told_how_to_be_somebody(
    secured_gateway: SecuredGateway, headers: dict[str, str | bytes]
) -> None:
    refused = secured_gateway.ask("GET", "/v1/topics", headers=headers)
    assert refused.status_code == 401, refused.text
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert refused.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("head", [b"Authorization: Basic \xe9", b"Penstock-Statement: \xe9.\xe9"])
def test_strangers_cannot_end_a_node_by_what_they_say_of_themselves(
    secured_gateway: SecuredGateway, head: bytes
) -> None:
    name, _, value = head.partition(b": ")
    metrics = f"http://{secured_gateway.node.ready['metrics']}/metrics"

    assert httpx.get(metrics, headers={name: value}, timeout=20).status_code == 401
    assert httpx.get(metrics, timeout=20).status_code == 401


def test_a_wrong_password_and_another_ones_key_are_nobody(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    assert gate.ask("GET", "/v1/topics", headers=basic("admin", "guess")).status_code == 401
    mine, other = gate.admin.create_api_key("alice"), gate.admin.create_api_key("admin")
    forged = f"pk_{other.id}_{mine.secret.split('_', 2)[2]}"
    assert gate.ask("GET", "/v1/topics", forged).status_code == 401
    both = {"authorization": f"Bearer {mine.secret}", "x-api-key": other.secret}
    assert gate.ask("GET", "/v1/topics", headers=both).status_code == 401


def test_pages_need_describe_on_the_cluster_and_health_needs_nothing(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    metrics = f"http://{gate.node.ready['metrics']}"
    nobody = gate.key("nobody")
    scraper = gate.key("scraper")
    gate.admin.create_acls(allow("scraper", ResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE))
    for base in (gate.url, metrics):
        for page in ("/health", "/ready"):
            assert httpx.get(base + page).status_code == 200
        assert httpx.get(base + "/metrics").status_code == 401
        for key, status in ((nobody, 403), (scraper, 200)):
            headers = {"authorization": f"Bearer {key}"}
            assert httpx.get(base + "/metrics", headers=headers, timeout=20).status_code == status


def test_every_response_tells_browsers_what_not_to_do(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    key = gate.key("admin")
    for response in (gate.ask("GET", "/health"), gate.ask("GET", "/docs", key), gate.ask("GET", "/nothing")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert "access-control-allow-origin" not in response.headers
    other = gate.ask("GET", "/v1/topics", key, headers={"origin": "https://evil.example"})
    assert other.status_code == 403


def test_no_secret_is_in_the_log_or_the_process_list(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    key = gate.key("alice")
    gate.ask("GET", "/v1/topics", key)
    gate.ask("GET", "/v1/topics", key + "x")
    gate.ask("GET", "/v1/topics", headers=basic("alice", "a-wrong-password"))
    said = gate.node.events.read_text()
    assert "gateway.login_failed" in said
    for secret in (key, "a-wrong-password", "admin-pw"):
        assert secret not in said
