"""API keys with a scope: each is good for what its operations need, and for nothing else."""

from typing import Any

import grpc
import pytest

from penstock.core.metadata.access import AclOperation, ResourceType
from penstock.v1 import penstock_pb2 as proto
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security_gateway.conftest import SecuredGateway, allow

TOPIC = "scoped"
STUB: Any = penstock_pb2_grpc.PenstockStub
MESSAGE = {"value": "hello"}


@pytest.fixture(scope="module")
def gate(secured_gateway: SecuredGateway) -> SecuredGateway:
    """Alice may read, write and alter her topic, and read as any group."""
    read, write, alter = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER
    secured_gateway.admin.create_acls(allow("alice", ResourceType.TOPIC, TOPIC, read, write, alter))
    secured_gateway.admin.create_acls(allow("alice", ResourceType.GROUP, "*", read))
    made = secured_gateway.ask("POST", "/v1/topics", secured_gateway.key("admin"), json={"name": TOPIC})
    assert made.status_code == 201, made.text
    return secured_gateway


def publish(gate: SecuredGateway, key: str) -> int:
    return gate.ask("POST", f"/v1/topics/{TOPIC}/publish", key, json=MESSAGE).status_code


@pytest.mark.parametrize("operation", [AclOperation.WRITE, AclOperation.ALL])
def test_a_key_that_may_write_publishes(gate: SecuredGateway, operation: AclOperation) -> None:
    key = gate.key("alice", scope=[operation])

    assert publish(gate, key) == 200
    batch = gate.ask("POST", f"/v1/topics/{TOPIC}/batch", key, json={"messages": [MESSAGE]})
    assert batch.status_code == 200, batch.text


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.ALL])
@pytest.mark.parametrize("mode", ["queue", "log"])
def test_a_key_that_may_read_consumes(gate: SecuredGateway, mode: str, operation: AclOperation) -> None:
    key = gate.key("alice", scope=[operation])
    group = f"/v1/groups/scoped-{mode}-{operation.name}"
    joined = gate.ask("POST", f"{group}/join", key, json={"topics": [TOPIC], "mode": mode})
    assert joined.status_code == 200, joined.text
    member = joined.json()["member_id"]
    assert publish(gate, gate.key("alice")) == 200

    polled = gate.ask("GET", f"{group}/poll", key, params={"member_id": member, "wait_ms": 10_000})

    assert polled.status_code == 200, polled.text
    message = polled.json()["messages"][0]
    if mode == "queue":
        settled = gate.ask("POST", f"{group}/ack", key, json={"receipts": [message["receipt"]]})
    else:
        position = {"topic": TOPIC, "partition": message["partition"], "offset": message["offset"] + 1}
        settled = gate.ask("POST", f"{group}/commit", key, json={"member_id": member, "offsets": [position]})
    assert settled.status_code == 200, settled.text
    left = gate.ask("POST", f"{group}/leave", key, json={"member_id": member})
    assert left.status_code in (200, 204), left.text


def test_a_key_is_for_nothing_else(gate: SecuredGateway) -> None:
    reads, writes, sees = (
        gate.key("alice", scope=[each])
        for each in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
    )
    page = f"/v1/topics/{TOPIC}/partitions/0/messages"

    assert [publish(gate, each) for each in (reads, sees)] == [403, 403]
    assert [gate.ask("GET", page, each).status_code for each in (reads, writes, sees)] == [200, 403, 403]
    assert gate.ask("DELETE", f"/v1/topics/{TOPIC}", writes).status_code == 403


def test_a_scope_counts_for_grpc(gate: SecuredGateway) -> None:
    reads, writes = (
        [("authorization", f"Bearer {gate.key('alice', scope=[each])}")]
        for each in (AclOperation.READ, AclOperation.WRITE)
    )
    message = proto.PublishRequest(topic=TOPIC, value=b"x")
    question = proto.PollRequest(group="scoped-grpc", topics=[TOPIC])
    with gate.channel() as channel:
        stub = STUB(channel)
        stub.Publish(message, metadata=writes, timeout=30)
        stub.Poll(question, metadata=reads, timeout=30)

        with pytest.raises(grpc.RpcError) as written:
            stub.Publish(message, metadata=reads, timeout=30)
        with pytest.raises(grpc.RpcError) as read:
            stub.Poll(question, metadata=writes, timeout=30)

    refused = {error.value.code() for error in (written, read)}
    assert refused == {grpc.StatusCode.PERMISSION_DENIED}
