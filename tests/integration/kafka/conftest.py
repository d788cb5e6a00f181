"""Nodes and connections for tests that send any message in any version."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.nodes import NodeProcess
from tests.support.wire import Wire


@pytest.fixture(scope="module")
def start_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., NodeProcess]]:
    """Starts nodes with settings such as `topics.auto_create=false`; they end with the module."""
    nodes: list[NodeProcess] = []

    def start(*settings: str) -> NodeProcess:
        nodes.append(NodeProcess(tmp_path_factory.mktemp("node") / "data", *settings).start())
        return nodes[-1]

    yield start
    for node in nodes:
        assert node.stop() == 0, "the node did not end well"


@pytest.fixture(scope="module")
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    """A node with default settings, except that offsets need few partitions."""
    return start_node("groups.offsets_partitions=3", "topics.partitions=3")


@pytest.fixture
def connect() -> Iterator[Callable[[tuple[str, int]], Wire]]:
    """Opens connections; they end with the test."""
    opened: list[Wire] = []

    def open_one(address: tuple[str, int]) -> Wire:
        opened.append(Wire(address))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def wire(node: NodeProcess, connect: Callable[[tuple[str, int]], Wire]) -> Wire:
    return connect(node.address)
