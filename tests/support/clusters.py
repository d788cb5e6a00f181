"""Several nodes in processes of their own that are one cluster."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.core.model import SECOND
from penstock.core.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from penstock.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from penstock.node.options import PortReservations
from penstock.runtime import Address
from penstock.runtime.loop import MachineClock
from tests.support.network import Network
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

HOST = "127.0.0.1"
# The ports that nodes have on machines of their own.
PORTS = {"kafka": 9092, "http": 8080, "metrics": 9090, "grpc": 9000, "peer": 7000}
# For whatever a machine that is busy may be late with.
SECONDS_MAX = 60.0
LOOK_SECONDS = 0.02

T = TypeVar("T")


class ClusterProcesses:
    """Nodes 1 to `count`, or from `first` on, each in a rack of its own, started, hit and asked by number.

    `login` is what clients set besides the addresses: nothing, unless the nodes ask who they are.

    On loopback their ports stay reserved while the cluster exists: otherwise a client that knocks at
    a dead node could be given that very port for its own end of a connection.
    """

    login: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        root: Path,
        *settings: str,
        count: int = 3,
        network: Network | None = None,
        first: int = 1,
        rack: str = "rack-{number}",
    ) -> None:
        self.root = root
        self._settings = settings
        self._network = network
        self._rack = rack
        numbers = range(first, first + count)
        wanted = {f"{door} {number}": Address(HOST, 0) for number in numbers for door in PORTS}
        self._reserved = PortReservations({} if network else wanted)
        self.voters = ",".join(f"{number}@{self.listener(number, 'peer')}" for number in numbers)
        self.nodes = {number: self._node(number) for number in numbers}

    def _node(self, number: int) -> NodeProcess:
        node = NodeProcess(self.root / f"node-{number}", *self.settings_of(number), *self._settings)
        if self._network is not None:
            node.wrapper = self._network.wrapper(number)
        return node

    def settings_of(self, number: int) -> list[str]:
        """Who a node is, and where."""
        doors = [f"listen.{door}={self.listener(number, door)}" for door in PORTS]
        who = [
            f"node.id={number}",
            f"node.rack={self._rack.format(number=number)}",
            f"cluster.voters={self.voters}",
        ]
        return [*who, *doors]

    def listener(self, number: int, door: str) -> Address:
        """Where a node listens, or would if it ran."""
        if self._network is not None:
            return Address(self._network.host(number), PORTS[door])
        return self._reserved[f"{door} {number}"]

    def start(self) -> "ClusterProcesses":
        """Start every node, and wait until all are ready."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.await_ready()
        return self

    def close(self) -> None:
        """End every node, whatever state it is in."""
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        self._reserved.close()

    @property
    def bootstrap(self) -> str:
        """Every Kafka address, for bootstrap.servers; also of nodes that are down."""
        return ",".join(str(self.listener(number, "kafka")) for number in self.nodes)

    @property
    def running(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.is_running]

    def address(self, number: int) -> tuple[str, int]:
        return self.listener(number, "kafka")

    def metadata(self, number: int, topics: Sequence[str] | None = None) -> MetadataResponse:
        """What one node tells clients."""
        asked = None if topics is None else tuple(MetadataRequestTopic(name=topic) for topic in topics)
        wire = Wire(self.address(number))
        try:
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
            return wire.ask(request, MetadataResponse, 12)
        finally:
            wire.close()

    def partitions(self, topic: str, number: int | None = None) -> dict[int, MetadataResponsePartition]:
        """The partitions of a topic as one node sees them; by default the first that responds."""
        for one in [number] if number is not None else self.running:
            with contextlib.suppress(OSError, AssertionError):
                [found] = self.metadata(one, [topic]).topics
                return {partition.partition_index: partition for partition in found.partitions}
        return {}

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; waits until there is one that runs."""

        def led() -> int | None:
            found = self.partitions(topic).get(partition)
            return found.leader_id if found is not None and found.leader_id in self.running else None

        return until(led, f"{topic}-{partition} has a leader")

    def controller(self) -> int:
        """The node that leads the metadata quorum."""

        def leads() -> int | None:
            for number in self.running:
                with contextlib.suppress(OSError, AssertionError):
                    found = self._quorum_leader(number)
                    if found in self.running:
                        return found
            return None

        return until(leads, "there is a controller")

    def _quorum_leader(self, number: int) -> int:
        """Who leads the quorum, as one node says. Metadata names some broker also when nobody does."""
        wire = Wire(self.address(number))
        try:
            partition = DescribeQuorumRequestPartition(partition_index=0)
            topic = DescribeQuorumRequestTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
            answer = wire.ask(DescribeQuorumRequest(topics=(topic,)), DescribeQuorumResponse, 2)
            return answer.topics[0].partitions[0].leader_id
        finally:
            wire.close()

    def await_in_sync(self, topic: str, seconds: float = SECONDS_MAX) -> None:
        """Wait until every partition has all its replicas in sync, and every node says so.

        A node that was cut off does not know yet what has changed: asking only one is not enough.
        """

        def in_sync() -> bool:
            seen = [self.partitions(topic, number) for number in self.running]
            views = {
                tuple((i, one.leader_id, one.leader_epoch) for i, one in sorted(view.items()))
                for view in seen
            }
            return len(views) == 1 and all(
                view and all(len(one.isr_nodes) == len(one.replica_nodes) for one in view.values())
                for view in seen
            )

        until(in_sync, f"{topic} is in sync", seconds)


@contextlib.contextmanager
def cluster_of(
    root: Path,
    *settings: str,
    count: int = 3,
    network: Network | None = None,
    first: int = 1,
    rack: str = "rack-{number}",
) -> Iterator[ClusterProcesses]:
    """A cluster that is ready, and ended at the end."""
    cluster = ClusterProcesses(root, *settings, count=count, network=network, first=first, rack=rack)
    try:
        yield cluster.start()
    finally:
        cluster.close()


def until(look: Callable[[], T | None], what: str, seconds: float = SECONDS_MAX) -> T:
    """Look again and again until there is a result that counts; if none comes, `what` is what is missing."""
    clock = MachineClock()
    deadline = clock.now() + int(seconds * SECOND)
    while True:
        answer = look()
        if answer:
            return answer
        assert clock.now() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(LOOK_SECONDS)
