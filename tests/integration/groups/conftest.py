"""The node of the Kafka door's tests, with a topic that groups can read."""

import pytest

from penstock.core.wire.kafka.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.wire.kafka.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.integration.kafka.conftest import RunningNode, Wire, node, start_node, wire

__all__ = ["node", "start_node", "wire"]

TOPIC = "orders"


def make_topic(connection: Wire, name: str) -> None:
    """A topic of four partitions, and the offsets topic with it."""
    request = CreateTopicsRequest(
        topics=(
            CreateTopicsRequestTopic(
                name=name, num_partitions=4, replication_factor=-1, assignments=(), configs=()
            ),
        )
    )
    answer = connection.ask(request, CreateTopicsResponse, 5)
    assert answer.topics[0].error_code == 0
    # The offsets topic is made when a coordinator is first looked for.
    connection.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)


@pytest.fixture(scope="module")
def topic(node: RunningNode) -> str:
    connection = Wire(node.address)
    make_topic(connection, TOPIC)
    connection.close()
    return TOPIC
