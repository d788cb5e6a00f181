"""One node in a process of its own, for clients and suites that nobody here wrote."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.core.records import CompressionType, check_batches
from tests.support.nodes import NodeProcess


@dataclass(frozen=True)
class Broker:
    """Where the node is, and what it has on disk."""

    address: str
    data_dir: Path

    def stored_codecs(self, topic: str) -> set[CompressionType]:
        """The codecs of the batches a topic holds, read from its files and not from a client."""
        files = (self.data_dir / "logs" / topic).glob("*/*.log")
        return {header.codec for file in files for header in check_batches(file.read_bytes())}


@contextmanager
def running_node(directory: Path, *settings: str) -> Iterator[Broker]:
    """A node on free ports that keeps data and events in `directory`, and must end well."""
    node = NodeProcess(directory / "data", *settings).start()
    try:
        yield Broker(node.kafka, node.data_dir)
        assert node.stop() == 0, node.events.read_text()
    finally:
        node.kill()
