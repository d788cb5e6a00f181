"""The node that all foreign clients of a session share."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.compatibility.node import Broker, running_node
from tests.compatibility.secured_node import SecuredNode, secured_node

pytest.register_assert_rewrite("tests.compatibility.clients.contract", "tests.compatibility.clients.logins")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = ("topics.partitions=4", "groups.offsets_partitions=4")
    with running_node(tmp_path_factory.mktemp("broker"), *settings) as started:
        yield started


# A node remembers how many users have failed at one address: each client has one of its own.
@pytest.fixture(scope="class")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured"), "groups.initial_rebalance_delay_ms=0") as started:
        yield started


@pytest.fixture(scope="session")
def fresh() -> Callable[[str], str]:
    """Names that no other test of this session uses."""
    numbers = itertools.count()
    return lambda stem: f"{stem}-{next(numbers)}"
