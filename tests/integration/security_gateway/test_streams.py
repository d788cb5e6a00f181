"""WebSocket and gRPC callers: they are asked as well, and streams end with the key that opened them."""

import json
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from penstock.core.metadata.access import AclOperation, ResourceType
from penstock.v1 import penstock_pb2 as proto
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security_gateway.conftest import SecuredGateway, allow

STUB: Any = penstock_pb2_grpc.PenstockStub


def bearer(key: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {key}")]


def read_all(socket: Any) -> None:
    """Until the connection ends."""
    while True:
        socket.recv(timeout=60)


def code(error: pytest.ExceptionInfo[grpc.RpcError]) -> Any:
    return error.value.code()


def test_grpc_asks_who_is_calling_and_rules_decide(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    key = gate.key("gina")
    gate.admin.create_acls(allow("gina", ResourceType.TOPIC, "gina", AclOperation.WRITE, AclOperation.CREATE))
    with gate.channel() as channel:
        stub = STUB(channel)
        with pytest.raises(grpc.RpcError) as nobody:
            stub.ListTopics(Empty(), timeout=20)
        assert code(nobody) is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as denied:
            stub.Publish(proto.PublishRequest(topic="other", value=b"x"), metadata=bearer(key), timeout=20)
        assert code(denied) is grpc.StatusCode.PERMISSION_DENIED
        stored = stub.Publish(
            proto.PublishRequest(topic="gina", value=b"x"), metadata=[("x-api-key", key)], timeout=20
        )
        assert stored.offset == 0


def test_a_grpc_stream_ends_with_its_key(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    made = gate.admin.create_api_key("admin")
    gate.ask("POST", "/v1/topics", made.secret, json={"name": "watched"})
    with gate.channel() as channel:
        stream = STUB(channel).Subscribe(
            proto.SubscribeRequest(topics=["watched"], mode=proto.MODE_LOG), metadata=bearer(made.secret)
        )
        # The stream has its start.
        stream.initial_metadata()
        gate.admin.delete_api_key(made.id)
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert code(ended) is grpc.StatusCode.UNAUTHENTICATED


def test_a_websocket_is_opened_by_somebody_and_ends_with_the_key(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    url = gate.url.replace("http", "ws") + "/v1/ws"
    with pytest.raises(InvalidStatus) as refused:
        connect(url)
    assert refused.value.response.status_code == 401

    made = gate.admin.create_api_key("wendy")
    with connect(url, additional_headers=dict(bearer(made.secret))) as socket:
        assert json.loads(socket.recv())["op"] == "welcome"
        socket.send(json.dumps({"op": "enqueue", "id": 1, "topic": "x", "message": {"value": "y"}}))
        reply = json.loads(socket.recv())
        assert "TOPIC_AUTHORIZATION_FAILED" in json.dumps(reply)
        gate.admin.delete_api_key(made.id)
        with pytest.raises(ConnectionClosed) as closed:
            read_all(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


def test_a_consumer_of_another_user_is_not_taken_over(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    url = gate.url.replace("http", "ws") + "/v1/ws?consumer=same"
    mine, other = gate.key("wendy"), gate.key("mallory")
    with connect(url, additional_headers=dict(bearer(mine))) as first:
        assert json.loads(first.recv())["op"] == "welcome"
        with connect(url, additional_headers=dict(bearer(other))) as second:
            assert json.loads(second.recv())["op"] == "welcome"
            first.send(json.dumps({"op": "ping", "id": 1}))
            assert json.loads(first.recv()) == {"op": "pong", "id": 1}


def test_a_caller_over_its_quota_is_told_to_wait(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    key = gate.key("quinn")
    gate.admin.create_acls(
        allow("quinn", ResourceType.TOPIC, "quinn", AclOperation.WRITE, AclOperation.CREATE)
    )
    gate.admin.alter_quotas((("user", "quinn"),), {"producer_byte_rate": 100.0})
    statuses = []
    for _ in range(3):
        response = gate.ask("POST", "/v1/topics/quinn/publish", key, json={"value": "x" * 2_000})
        statuses.append(response.status_code)
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert int(response.headers["retry-after"]) >= 1
    with gate.channel() as channel, pytest.raises(grpc.RpcError) as waiting:
        STUB(channel).Publish(
            proto.PublishRequest(topic="quinn", value=b"x"), metadata=bearer(key), timeout=20
        )
    assert code(waiting) is grpc.StatusCode.RESOURCE_EXHAUSTED
    other = gate.key("admin")
    assert gate.ask("POST", "/v1/topics/quinn/publish", other, json={"value": "x"}).status_code == 200


def test_a_reader_over_its_quota_waits_and_misses_nothing(secured_gateway: SecuredGateway) -> None:
    gate = secured_gateway
    key, admin = gate.key("rita"), gate.key("admin")
    gate.ask("POST", "/v1/topics", admin, json={"name": "rita", "partitions": 1})
    for number in range(8):
        message = {"value": f"{number}" * 900}
        assert gate.ask("POST", "/v1/topics/rita/publish", admin, json=message).status_code == 200
    for user in ("rita", "rose"):
        gate.admin.create_acls(allow(user, ResourceType.TOPIC, "rita", AclOperation.READ))
        gate.admin.alter_quotas((("user", user),), {"consumer_byte_rate": 2_000.0})

    path = "/v1/topics/rita/partitions/0/messages?offset=0"
    answers = [gate.ask("GET", path, key) for _ in range(3)]
    with gate.channel() as channel:
        start = proto.Position(topic="rita", partition=0, offset=0)
        request = proto.SubscribeRequest(topics=["rita"], mode=proto.MODE_LOG, positions=[start])
        stream = STUB(channel).Subscribe(request, metadata=bearer(gate.key("rose")), timeout=60)
        values = [next(stream).value[1:2] for _ in range(8)]

    assert answers[0].status_code == 200
    assert 0 < len(answers[0].json()["messages"]) < 8
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert values == [b"%d" % number for number in range(8)]
