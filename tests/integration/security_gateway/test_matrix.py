"""Every REST route and gRPC method, for nobody, somebody without rights, with the one right, a super user."""

from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from penstock.core.metadata.access import ResourceType
from penstock.server.gateway.permissions import GRPC, IDENTITY, OPEN, REST, Needs
from penstock.v1 import penstock_pb2 as proto
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security_gateway.conftest import SecuredGateway, allow

STUB: Any = penstock_pb2_grpc.PenstockStub

RECEIPTS = {"receipts": ["r"]}
BODIES: dict[str, Any] = {
    "/v1/topics/{topic}/publish": {"value": "x"},
    "/v1/topics/{topic}/batch": {"messages": [{"value": "x"}]},
    "/produce": {"topic": "matrix", "value": "x"},
    "/v1/topics": {"name": "matrix"},
    "/subscribe": {"group": "matrix", "topics": ["matrix"]},
    "/v1/groups/{group}/join": {"topics": ["matrix"]},
    "/v1/groups/{group}/leave": {"member_id": "m"},
    "/v1/groups/{group}/heartbeat": {"member_id": "m"},
    "/v1/groups/{group}/commit": {
        "member_id": "m",
        "offsets": [{"topic": "matrix", "partition": 0, "offset": 0}],
    },
    "/v1/batches/{batch:path}": {"transactions": []},
}
QUERIES = {
    "/v1/groups/{group}/poll": "?member_id=m&topics=matrix",
    "/consume": "?topic=matrix&partition=0&offset=0",
}
NAMES = {
    "{topic}": "matrix", "{group}": "matrix", "{partition}": "0", "{offset}": "0",
    "{delay_id}": "none", "{batch:path}": "matrix/1",
}  # fmt: skip
FORBIDDEN, HIDDEN = 403, 404


def ask(gate: SecuredGateway, method: str, path: str, key: str | None) -> int:
    url = path + QUERIES.get(path, "")
    for name, value in NAMES.items():
        url = url.replace(name, value)
    body = BODIES.get(path)
    if path.endswith(("/ack", "/nack", "/renew")):
        body = RECEIPTS
    return gate.ask(
        method, url, key, **({} if body is None or method == "GET" else {"json": body})
    ).status_code


@pytest.fixture(scope="module")
def keys(secured_gateway: SecuredGateway) -> dict[str, str]:
    gate = secured_gateway
    admin = gate.key("admin")
    gate.ask("POST", "/v1/topics", admin, json={"name": "matrix"})
    return {"super": admin, "nothing": gate.key("no-rights")}


def grant(gate: SecuredGateway, user: str, needs: Needs) -> str:
    assert not isinstance(needs, str)
    for right in needs:
        name = "kafka-cluster" if right.kind is ResourceType.CLUSTER else "*"
        gate.admin.create_acls(allow(user, right.kind, name, right.operation))
    return gate.key(user)


@pytest.mark.parametrize(("method", "path"), list(REST), ids=str)
def test_a_route_is_for_those_who_have_its_right(
    secured_gateway: SecuredGateway, keys: dict[str, str], method: str, path: str
) -> None:
    gate, needs = secured_gateway, REST[method, path]
    if needs == OPEN:
        assert ask(gate, method, path, None) == 200
        return
    assert ask(gate, method, path, None) == 401
    without = ask(gate, method, path, keys["nothing"])
    if needs == IDENTITY:
        assert without not in (401, FORBIDDEN)
    else:
        assert without in (FORBIDDEN, HIDDEN)
        user = f"one-{list(REST).index((method, path))}"
        assert ask(gate, method, path, grant(gate, user, needs)) not in (401, FORBIDDEN)
    assert ask(gate, method, path, keys["super"]) not in (401, FORBIDDEN)
    if method == "DELETE" and path == "/v1/topics/{topic}":
        gate.ask("POST", "/v1/topics", keys["super"], json={"name": "matrix"})


def request_of(method: str) -> Any:
    service = proto.DESCRIPTOR.services_by_name["Penstock"]
    return GetMessageClass(service.methods_by_name[method].input_type)()


def call(stub: Any, method: str, request: Any) -> None:
    """Make a call, and read what it returns."""
    if method == "PublishStream":
        list(stub.PublishStream(iter([request]), timeout=20))
    elif method == "Subscribe":
        list(stub.Subscribe(request, timeout=20))
    else:
        getattr(stub, method)(request, timeout=20)


@pytest.mark.parametrize("method", list(GRPC))
def test_a_call_without_an_identity_is_not_served(secured_gateway: SecuredGateway, method: str) -> None:
    with secured_gateway.channel() as channel:
        stub = STUB(channel)
        request = request_of(method)
        with pytest.raises(grpc.RpcError) as refused:
            call(stub, method, request)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
