"""A node, a connection to it, and a topic that groups can read."""

from collections.abc import Iterator

import pytest

from tests.integration.groups.group_node import GroupNode, Wire

TOPIC = "orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupNode]:
    running = GroupNode.start(tmp_path_factory.mktemp("node") / "data")
    yield running
    running.stop()


@pytest.fixture
def wire(node: GroupNode) -> Iterator[Wire]:
    connection = Wire(node.address)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def topic(node: GroupNode) -> str:
    connection = Wire(node.address)
    connection.make_topic(TOPIC)
    connection.close()
    return TOPIC
