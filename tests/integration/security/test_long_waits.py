"""Requests that wait at the broker for longer than the login counts that they began with."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Endpoint, TopicAdmin
from penstock.client.cluster import pipeline as pipelines
from penstock.client.cluster.pipeline import open_pipeline
from penstock.client.cluster.security import cluster_security
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.compatibility.secured_node import can_log_in
from tests.integration.security.conftest import PASSWORDS
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

TOPIC = "quiet"
LOGIN_MS, WAIT_MS = 1_000, 3_000


@pytest.fixture(name="endpoint")
def endpoint_of_a_node_with_short_logins(tmp_path: Path) -> Iterator[Endpoint]:
    password = tmp_path / "password"
    password.write_text(PASSWORDS["admin"] + "\n")
    password.chmod(0o600)
    node = NodeProcess(
        tmp_path / "data",
        "listen.protocol=SASL_PLAINTEXT",
        "security.enabled=true",
        "security.super_users=admin",
        "security.admin_user=admin",
        f"security.admin_password_file={password}",
        "security.sasl.mechanisms=SCRAM-SHA-512",
        f"security.sasl.reauthenticate_ms={LOGIN_MS}",
    ).start()
    try:
        options = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
        }
        endpoint = Endpoint(node.kafka, options)
        until(lambda: can_log_in(endpoint), "the administrator has its password")
        TopicAdmin(endpoint).create(TOPIC, 1, 1, {})
        yield endpoint
    finally:
        node.kill()


def test_a_request_may_wait_for_longer_than_its_login_counts(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "LOGIN_SECONDS", 0.5)
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    waiting = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=1_000,
        session_epoch=-1,
        topics=(FetchRequestTopic(topic=TOPIC, partitions=(part,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    host, _, port = endpoint.bootstrap.rpartition(":")

    async def ask() -> tuple[object, object]:
        pipeline = await open_pipeline((host, int(port)), "tests", cluster_security(endpoint))
        try:
            fetched = await pipeline.ask(waiting)
            # The login has ended meanwhile: this one waits for the next.
            return fetched, await pipeline.ask(MetadataRequest(topics=()))
        finally:
            pipeline.close()

    fetched, listed = asyncio.run(ask())

    assert isinstance(fetched, FetchResponse)
    assert [part.error_code for topic in fetched.responses for part in topic.partitions] == [ErrorCode.NONE]
    assert isinstance(listed, MetadataResponse)
