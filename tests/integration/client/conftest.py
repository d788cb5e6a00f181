"""One broker in a process of its own; every test has its topic."""

import os
from collections.abc import Iterator

import pytest

from penstock.cli.child import BrokerProcess, throw_away_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with throw_away_broker(["topics.partitions=2", "groups.offsets_partitions=4"]) as child:
        yield child


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture
def topic() -> str:
    return f"t-{os.urandom(6).hex()}"
