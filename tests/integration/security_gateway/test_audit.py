"""What the audit log of a node says of those who call its gateway and its pages."""

from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.empty_pb2 import Empty
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.security.audit.file import read_lines
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security_gateway.conftest import ADMIN_PASSWORD, SecuredGateway, basic
from tests.support.clusters import until

STUB: Any = penstock_pb2_grpc.PenstockStub
GUESS = "a-guess-of-a-password"


def test_failed_logins_of_every_protocol_are_told(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    rest, socket, call = (basic(f"audit-{name}", GUESS) for name in ("rest", "websocket", "grpc"))

    assert gate.ask("GET", "/v1/topics", headers=rest).status_code == 401
    with pytest.raises(InvalidStatus):
        connect(gate.url.replace("http", "ws") + "/v1/ws", additional_headers=socket)
    with gate.channel() as channel, pytest.raises(grpc.RpcError):
        STUB(channel).ListTopics(Empty(), metadata=list(call.items()), timeout=30)

    for api, listener, user in (
        ("REST", "http", "audit-rest"),
        ("WebSocket", "http", "audit-websocket"),
        ("gRPC", "grpc", "audit-grpc"),
    ):
        (line,) = until(lambda: gate.audited(resource=user), "it was written")  # noqa: B023 - called at once
        assert (line["api"], line["listener"], line["mechanism"]) == (api, listener, "BASIC")
        assert (line["operation"], line["decision"], line["host"]) == ("login", "refused", "127.0.0.1")
        assert line["error"] == f"{user}: unknown user or wrong password"


def test_an_api_key_is_named_at_its_login_and_where_it_is_used(secured_gateway: SecuredGateway) -> None:
    gate, key = secured_gateway, secured_gateway.key("audited")
    gate.ask("GET", "/v1/topics", key)
    named = [f"API key {key.split('_')[1]}"]

    def lines() -> list[dict[str, Any]]:
        found = [line for line in gate.audited(principal="User:audited") if line["details"] == named]
        return found if len(found) > 1 else []

    found = until(lines, "the login and that of the gateway are written")
    assert {(line["api"], line["mechanism"]) for line in found} == {
        ("REST", "API-KEY"),
        ("SaslAuthenticate", "PENSTOCK-DELEGATE"),
    }


@pytest.mark.parametrize("server", ["http", "metrics"])
def test_metrics_that_were_refused_are_told(secured_gateway: SecuredGateway, server: str) -> None:
    gate, user = secured_gateway, f"no-metrics-at-{server}"
    key = gate.key(user)
    host, port = str(gate.node.ready[server]).rsplit(":", 1)

    headers = {"authorization": f"Bearer {key}"}
    assert httpx.get(f"http://{host}:{port}/metrics", headers=headers, timeout=30).status_code == 403

    wanted = {"principal": f"User:{user}", "decision": "refused", "operation": "describe"}
    (line,) = until(lambda: gate.audited(**wanted), "it was written")
    assert (line["api"], line["resource"], line["host"]) == ("page", "kafka-cluster", "127.0.0.1")


def test_the_user_of_the_configuration_is_told_without_its_password(secured_gateway: SecuredGateway) -> None:
    wanted: dict[str, Any] = {"api": "ConfiguredAdministrator", "error": None}
    (line,) = until(lambda: secured_gateway.audited(**wanted), "it was written")

    assert (line["principal"], line["operation"], line["resource"]) == ("Node:1", "alter", "admin")
    written = b"".join(read_lines(str(secured_gateway.node.data_dir / "audit"))).decode()
    assert ADMIN_PASSWORD not in written
    assert GUESS not in written
