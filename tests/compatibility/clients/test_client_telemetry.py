"""librdkafka pushes the metrics that a subscription asks for (KIP-714)."""

import re
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.core.metadata import ConfigResourceType
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.support.clusters import until
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

SET = 0
COUNTED = re.compile(
    r'^penstock_client_telemetry_(pushes|bytes)_total\{software="([^"]+)"\} ([0-9.e+]+)$', re.MULTILINE
)


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("telemetry") / "data", "metrics.enabled=true").start()
    try:
        yield node
    finally:
        node.kill()


def subscribe(node: NodeProcess, **values: str) -> None:
    configs = tuple(
        IncrementalAlterConfigsRequestConfig(name=key.replace("_", "."), config_operation=SET, value=value)
        for key, value in values.items()
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=ConfigResourceType.CLIENT_METRICS, resource_name="everything", configs=configs
    )
    wire = Wire(node.address)
    try:
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (row,) = wire.ask(request, IncrementalAlterConfigsResponse, 1).responses
    finally:
        wire.close()
    assert row.error_code == 0, row.error_message


def counted(node: NodeProcess) -> dict[str, dict[str, float]]:
    """Pushes and bytes, by the client's software."""
    with urllib.request.urlopen(f"http://{node.ready['metrics']}/metrics", timeout=60) as page:
        found = COUNTED.findall(page.read().decode())
    figures: dict[str, dict[str, float]] = {}
    for figure, software, value in found:
        figures.setdefault(software, {})[figure] = float(value)
    return figures


def test_what_a_client_pushes_is_counted(node: NodeProcess) -> None:
    subscribe(node, metrics="*", interval_ms="200", match="client_id=watched")
    producer = Producer({"bootstrap.servers": node.kafka, "client.id": "watched"})
    producer.produce("telemetry", b"value")
    assert producer.flush(30) == 0

    def has_pushed() -> bool:
        producer.poll(0.1)
        return any(one["pushes"] >= 2 and one["bytes"] > 0 for one in counted(node).values())

    until(has_pushed, "the client has pushed twice")
    assert all("librdkafka" in software or "confluent" in software for software in counted(node))
