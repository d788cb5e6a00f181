"""What changes while clients are connected."""

import base64
import os
import socket
import ssl
import urllib.request
from pathlib import Path
from uuid import UUID

import pytest

from penstock.client import ClientError, Endpoint
from penstock.client.access import AccessAdmin
from penstock.client.connection import connect
from penstock.client.connection_security import LoginFailed
from penstock.core.metadata.access import AclFilter, AclOperation, ResourceType
from penstock.core.model import NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from penstock.core.records import Record, write_batch
from penstock.security.certificates import create_node_certificate
from tests.integration.security.conftest import PASSWORDS, Secured, allow
from tests.support.clusters import until


def topic_code(secured: Secured, user: str, topic: str) -> int:
    connection = connect(secured.endpoint(user))
    try:
        answer = connection.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic),)))
    finally:
        connection.close()
    return int(answer.topics[0].error_code)


def test_a_rule_counts_from_when_it_is_acknowledged_and_until_it_is_gone(secured: Secured) -> None:
    admin = AccessAdmin(secured.endpoint("admin"))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    connection = connect(secured.endpoint("bob"))
    ask = MetadataRequest(topics=(MetadataRequestTopic(name="shared"),), allow_auto_topic_creation=False)
    assert connection.ask(ask).topics[0].error_code == denied

    admin.create_acls(allow("shared", AclOperation.READ, user="bob", kind=ResourceType.TOPIC))
    assert connection.ask(ask).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    removed = admin.delete_acls(AclFilter(principal="User:bob"))
    assert len(removed) == 1
    assert connection.ask(ask).topics[0].error_code == denied
    connection.close()


def waiting_fetches(secured: Secured) -> int:
    """How many partitions fetches wait for, by the node's metrics."""
    login = base64.b64encode(f"admin:{PASSWORDS['admin']}".encode()).decode()
    request = urllib.request.Request(
        f"https://{secured.node.ready['http']}/metrics", headers={"Authorization": f"Basic {login}"}
    )
    context = ssl.create_default_context(cafile=str(secured.authority))
    with urllib.request.urlopen(request, timeout=60, context=context) as response:
        page = response.read().decode()
    rows = [
        row for row in page.splitlines() if row.startswith('penstock_client_entries{kind="waiting fetch"}')
    ]
    return int(float(rows[0].split()[-1])) if rows else 0


def fetch_of(topic_id: UUID) -> FetchRequest:
    partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=(FetchRequestTopic(topic_id=topic_id, partitions=(partition,)),),
    )


def test_a_fetch_that_waits_shows_nothing_that_was_forbidden_meanwhile(secured: Secured) -> None:
    admin, topic = AccessAdmin(secured.endpoint("admin")), "watched"
    create = CreateTopicsRequestTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    writer = connect(secured.endpoint("admin"))
    writer.ask(CreateTopicsRequest(topics=(create,), timeout_ms=10_000))
    admin.create_acls(allow(topic, AclOperation.READ, user="bob", kind=ResourceType.TOPIC))
    connection = connect(secured.endpoint("bob"))
    about = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    topic_id = connection.ask(about).topics[0].topic_id
    # One that waits beside it, of somebody who may read on.
    control = connect(secured.endpoint("admin"))
    connection.send(fetch_of(topic_id))
    control.send(fetch_of(topic_id))
    until(lambda: waiting_fetches(secured) == 2, "both fetches wait")

    admin.delete_acls(AclFilter(principal="User:bob"))
    content = bytes(write_batch([Record(0, 0, None, b"secret")]))
    batch = ProduceRequestPartition(index=0, records=content)
    written = ProduceRequestTopic(topic_id=topic_id, partition_data=(batch,))
    answer = writer.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(written,)))

    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    (seen,), (refused,) = (each.receive().responses[0].partitions for each in (control, connection))
    assert b"secret" in bytes(seen.records)
    assert (refused.error_code, bytes(refused.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
    for each in (connection, writer, control):
        each.close()


def test_a_changed_password_counts_at_once(secured: Secured) -> None:
    admin = AccessAdmin(secured.endpoint("admin"))
    old = secured.endpoint("bob")
    new = Endpoint(old.bootstrap, {**old.options, "sasl.password": "another"})
    connect(old).close()

    admin.set_password("bob", "another")
    try:
        connect(new).close()
        with pytest.raises(LoginFailed):
            connect(old)
    finally:
        admin.set_password("bob", PASSWORDS["bob"])


def test_a_user_that_was_removed_does_not_log_in(secured: Secured) -> None:
    admin = AccessAdmin(secured.endpoint("admin"))
    admin.set_password("carol", "carol-pw")
    options = {**secured.endpoint("bob").options, "sasl.username": "carol", "sasl.password": "carol-pw"}
    carol = Endpoint(secured.addresses["SASL_SSL"], options)
    connect(carol).close()

    admin.delete_user("carol")

    with pytest.raises(LoginFailed):
        connect(carol)
    with pytest.raises(ClientError, match="no user carol"):
        admin.delete_user("carol")


def serial_number(secured: Secured) -> str:
    host, _, port = secured.addresses["SASL_SSL"].partition(":")
    context = ssl.create_default_context(cafile=str(secured.authority))
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        certificate = encrypted.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


def test_a_replaced_certificate_is_used_and_connections_stay(secured: Secured) -> None:
    kept = connect(secured.endpoint("alice"))
    before = serial_number(secured)
    made = create_node_certificate(secured.certificates, NodeId(77), ["localhost", "127.0.0.1"])

    for old, new in zip(("node-1.pem", "node-1.key"), made, strict=True):
        os.replace(new, Path(secured.certificates, old))
    until(lambda: serial_number(secured) != before, "the new certificate is used")

    assert kept.ask(MetadataRequest(topics=())).brokers
    kept.close()


def test_rules_and_passwords_survive_kill_nine(secured: Secured) -> None:
    assert topic_code(secured, "alice", "alice-x") != ErrorCode.TOPIC_AUTHORIZATION_FAILED

    secured.node.kill()
    secured.node.start()
    # Ports that nobody has chosen are others then.
    secured.addresses.update(secured.node.ready["listeners"])

    assert topic_code(secured, "alice", "alice-x") != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert topic_code(secured, "bob", "alice-x") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
