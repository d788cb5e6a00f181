"""A secured cluster of three nodes with gateways: who may do what counts at every node, audit included."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from google.protobuf.empty_pb2 import Empty

from penstock.client import Endpoint
from penstock.client.access import AccessAdmin
from penstock.client.connection import connect
from penstock.client.connection_security import LoginFailed
from penstock.core.metadata.access import AclFilter, AclOperation, ResourceType
from penstock.v1 import penstock_pb2_grpc
from tests.integration.security.conftest import Issuer
from tests.integration.security_gateway.conftest import ADMIN_PASSWORD, allow, basic, secured_settings
from tests.support.clusters import ClusterProcesses, cluster_of, until

ROUNDS = 5
NUMBERS = (1, 2, 3)
TOPIC = ResourceType.TOPIC


class SecuredCluster:
    """What its users ask of each node."""

    def __init__(self, processes: ClusterProcesses) -> None:
        self.processes = processes

    def login(self, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }

    def endpoint(self, number: int, user: str = "admin", password: str = ADMIN_PASSWORD) -> Endpoint:
        return Endpoint(str(self.processes.listener(number, "kafka")), self.login(user, password))

    def admin(self, number: int) -> AccessAdmin:
        return AccessAdmin(self.endpoint(number))

    def status(self, number: int, path: str, headers: dict[str, str], **more: Any) -> int:
        url = f"http://{self.processes.listener(number, 'http')}{path}"
        method = more.pop("method", "GET")
        return httpx.request(method, url, headers=headers, timeout=40, **more).status_code

    def publish(self, number: int, topic: str, key: str) -> int:
        path = f"/v1/topics/{topic}/publish"
        return self.status(number, path, bearer(key), method="POST", json={"value": "x"})

    def grpc_code(self, number: int, key: str) -> Any:
        address = str(self.processes.listener(number, "grpc"))
        with grpc.insecure_channel(address) as channel:
            stub: Any = penstock_pb2_grpc.PenstockStub(channel)  # type: ignore[no-untyped-call]
            try:
                stub.ListTopics(Empty(), metadata=list(bearer(key).items()), timeout=40)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    def audited(self) -> list[dict[str, Any]]:
        """What `__audit` has so far."""
        settings = {"bootstrap.servers": self.processes.bootstrap, "group.id": "auditors"}
        settings["enable.auto.commit"] = "false"
        consumer = Consumer({**settings, **self.login("admin", ADMIN_PASSWORD)})
        try:
            consumer.assign([TopicPartition("__audit", 0, 0)])
            _, end = consumer.get_watermark_offsets(TopicPartition("__audit", 0), timeout=30)
            found: list[dict[str, Any]] = []
            while not found or consumer.position([TopicPartition("__audit", 0)])[0].offset < end:
                message = consumer.poll(30)
                assert message is not None, "the records below the end come"
                assert not message.error(), message.error()
                found += [json.loads(line) for line in (message.value() or b"").splitlines()]
            return found
        finally:
            consumer.close()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    root = tmp_path_factory.mktemp("three")
    settings = [
        *secured_settings(root, Issuer(root / "jwks.json")),
        "security.peers=plain",
        "security.audit.enabled=true",
        "security.audit.topic=true",
    ]
    with cluster_of(root, *settings) as processes:
        made = SecuredCluster(processes)
        until(lambda: all(_logs_in(made, number) for number in NUMBERS), "the administrator has its password")
        yield made


def _logs_in(cluster: SecuredCluster, number: int) -> bool:
    try:
        connect(cluster.endpoint(number)).close()
    except LoginFailed:
        return False
    return True


def test_a_key_counts_at_every_node_when_it_is_made_and_at_none_when_it_is_revoked(
    cluster: SecuredCluster,
) -> None:
    for at in (1, 2, 3, 1, 2):
        made = cluster.admin(at).create_api_key("admin")
        assert [cluster.status(each, "/v1/topics", bearer(made.secret)) for each in NUMBERS] == [200] * 3
        assert {cluster.grpc_code(each, made.secret) for each in NUMBERS} == {grpc.StatusCode.OK}

        cluster.admin(at).delete_api_key(made.id)
        assert [cluster.status(each, "/v1/topics", bearer(made.secret)) for each in NUMBERS] == [401] * 3


def test_a_user_logs_in_at_every_node_when_it_is_made_and_nowhere_when_it_is_removed(
    cluster: SecuredCluster,
) -> None:
    for turn in range(ROUNDS):
        user, at = f"user-{turn}", turn % 3 + 1
        cluster.admin(at).set_password(user, "first-pw")
        for each in NUMBERS:
            connect(cluster.endpoint(each, user, "first-pw")).close()
        cluster.admin(at).set_password(user, "second-pw")
        for each in NUMBERS:
            with pytest.raises(LoginFailed):
                connect(cluster.endpoint(each, user, "first-pw"))
            assert cluster.status(each, "/v1/topics", basic(user, "second-pw")) == 200
        cluster.admin(at).delete_user(user)
        assert [cluster.status(each, "/v1/topics", basic(user, "second-pw")) for each in NUMBERS] == [401] * 3


def test_a_rule_counts_at_every_node_when_it_is_acknowledged(cluster: SecuredCluster) -> None:
    admins_key = cluster.admin(1).create_api_key("admin").secret
    path = "/v1/topics"
    assert cluster.status(1, path, bearer(admins_key), method="POST", json={"name": "ruled"}) == 201
    for turn in range(ROUNDS):
        user, at = f"ruled-{turn}", turn % 3 + 1
        key = cluster.admin(at).create_api_key(user).secret
        assert [cluster.publish(each, "ruled", key) for each in NUMBERS] == [403] * 3
        cluster.admin(at).create_acls(allow(user, TOPIC, "ruled", AclOperation.WRITE))
        assert [cluster.publish(each, "ruled", key) for each in NUMBERS] == [200] * 3
        cluster.admin(at).delete_acls(AclFilter(principal=f"User:{user}"))
        assert [cluster.publish(each, "ruled", key) for each in NUMBERS] == [403] * 3


def test_what_every_node_saw_is_in_the_audit_topic_whoever_leads_it(cluster: SecuredCluster) -> None:
    def refuse_everywhere(user: str) -> None:
        for each in NUMBERS:
            with pytest.raises(LoginFailed):
                connect(cluster.endpoint(each, user, "wrong"))

    def nodes_with(user: str) -> set[int]:
        return {
            each["node"]
            for each in cluster.audited()
            if (each["resource"], each["decision"]) == (user, "refused")
        }

    refuse_everywhere("eve")
    until(lambda: nodes_with("eve") == set(NUMBERS), "every node's refusal is in the topic", 60)

    leader = cluster.processes.nodes[_leader_of_audit(cluster)]
    leader.kill()
    refused = [each for each in NUMBERS if cluster.processes.nodes[each].is_running]
    for each in refused:
        with pytest.raises(LoginFailed):
            connect(cluster.endpoint(each, "mallory", "wrong"))
    until(lambda: nodes_with("mallory") == set(refused), "another node leads the topic", 60)
    leader.start()
    refuse_everywhere("oscar")
    until(lambda: nodes_with("oscar") == set(NUMBERS), "a node that was down writes again", 60)


def _leader_of_audit(cluster: SecuredCluster) -> int:
    settings = {"bootstrap.servers": cluster.processes.bootstrap, "group.id": "auditors"}
    admin = Consumer({**settings, **cluster.login("admin", ADMIN_PASSWORD)})
    try:
        return int(admin.list_topics("__audit", timeout=30).topics["__audit"].partitions[0].leader)
    finally:
        admin.close()
