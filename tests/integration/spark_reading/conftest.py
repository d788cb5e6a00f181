"""A broker for the readers, and both readers for every test."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.spark.reading import OffsetRangeReader
from penstock.spark.reading.reader import LibrdkafkaReader, SocketReader
from penstock.spark.reading.spans import ReaderOptions
from tests.support.nodes import NodeProcess

_numbers = itertools.count()

# Opens a reader on bootstrap servers.
OpenReader = Callable[[str, ReaderOptions], OffsetRangeReader]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(
        tmp_path_factory.mktemp("reading") / "node", "storage.compaction_interval_ms=200"
    ).start()
    yield node
    assert node.stop() == 0


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A broker that a test may kill."""
    node = NodeProcess(tmp_path / "node").start()
    yield node
    node.stop()


@pytest.fixture(params=["wire", "client"])
def open_one(request: pytest.FixtureRequest) -> Iterator[OpenReader]:
    opened: list[OffsetRangeReader] = []

    def open_reader(bootstrap: str, options: ReaderOptions) -> OffsetRangeReader:
        reader: OffsetRangeReader
        if request.param == "wire":
            reader = SocketReader(bootstrap, options)
        else:
            reader = LibrdkafkaReader({"bootstrap.servers": bootstrap}, options)
        opened.append(reader)
        return reader

    yield open_reader
    for reader in opened:
        reader.close()
