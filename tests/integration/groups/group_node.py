"""A node with few partitions for its groups, and topics for them to read."""

from contextlib import closing
from pathlib import Path

from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire


def group_node(data_dir: Path) -> NodeProcess:
    return NodeProcess(data_dir, "groups.offsets_partitions=3")


def make_topic(node: NodeProcess, name: str) -> None:
    """A topic of four partitions; and the offsets topic, made when a coordinator is looked for."""
    topic = CreateTopicsRequestTopic(
        name=name, num_partitions=4, replication_factor=-1, assignments=(), configs=()
    )
    with closing(Wire(node.address)) as wire:
        answer = wire.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, 5)
        assert answer.topics[0].error_code == 0
        wire.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
