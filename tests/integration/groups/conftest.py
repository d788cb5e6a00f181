"""A node, a connection to it, and a topic that groups can read."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.groups.group_node import group_node, make_topic
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

TOPIC = "orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    running = group_node(tmp_path_factory.mktemp("node") / "data").start()
    yield running
    assert running.stop() == 0, "the node did not end well"


@pytest.fixture
def wire(node: NodeProcess) -> Iterator[Wire]:
    with closing(Wire(node.address)) as connection:
        yield connection


@pytest.fixture(scope="module")
def topic(node: NodeProcess) -> str:
    make_topic(node, TOPIC)
    return TOPIC
