"""Nodes that cannot be what they say they are: one clear line, and no harm done to the others."""

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.client import Endpoint, ProducerOptions, TopicAdmin, TopicProducer
from penstock.node.options import PortReservations
from penstock.runtime import Address
from tests.support.clusters import ClusterProcesses, until
from tests.support.nodes import NodeProcess

TOPIC = "unharmed"


@pytest.fixture(scope="module")
def topic(cluster: ClusterProcesses) -> str:
    TopicAdmin(Endpoint(cluster.bootstrap)).create(TOPIC, 3, 3, {})
    return TOPIC


@pytest.fixture
def unharmed(cluster: ClusterProcesses, topic: str) -> Iterator[None]:
    """The three nodes run on, are in sync and take writes, whatever the test has tried."""
    yield
    assert cluster.running == [1, 2, 3]
    cluster.await_in_sync(topic)
    sender = TopicProducer(Endpoint(cluster.bootstrap), topic, ProducerOptions())
    sender.send(b"a record")
    assert sender.finish().delivered == 1


def refusal(node: NodeProcess) -> str:
    """The one line with which a node ends that must not start."""
    node.launch()
    code = node.await_end(20)
    assert code == 1, node.said()
    lines = [line for line in node.events.read_text().splitlines() if not line.startswith("{")]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.usefixtures("unharmed")
def test_a_blank_node_with_the_id_of_one_that_runs_is_refused(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    # Its peer address may be the one the voters have, since they have a name: but it is not.
    port = cluster.listener(2, "peer").port
    voters = cluster.voters.replace(f"2@127.0.0.1:{port}", f"2@localhost:{port}")
    with closing(PortReservations({"peer": Address("127.0.0.2", port)})):
        impostor = NodeProcess(
            tmp_path / "data", "node.id=2", f"cluster.voters={voters}", f"listen.peer=127.0.0.2:{port}"
        )

        line = refusal(impostor)

    assert line.startswith("penstock: ")
    assert "2" in line


@pytest.mark.usefixtures("unharmed")
def test_a_node_of_another_cluster_is_refused(cluster: ClusterProcesses, tmp_path: Path) -> None:
    stranger = NodeProcess(tmp_path / "data", "node.id=4")
    stranger.start()
    stranger.stop()

    with closing(PortReservations({"peer": Address("127.0.0.1", 0)})) as reserved:
        line = refusal(
            NodeProcess(
                tmp_path / "data",
                *("node.id=4", "node.roles=broker", f"listen.peer={reserved['peer']}"),
                f"cluster.voters={cluster.voters}",
            )
        )

    assert "another cluster" in line


@pytest.mark.usefixtures("unharmed")
def test_a_node_that_looks_for_a_voter_where_another_one_is_is_refused(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    first, second = cluster.listener(1, "peer"), cluster.listener(2, "peer")
    with closing(PortReservations({"peer": Address("127.0.0.1", 0)})) as reserved:
        line = refusal(
            NodeProcess(
                tmp_path / "data",
                *("node.id=4", "node.roles=broker", f"listen.peer={reserved['peer']}"),
                f"cluster.voters=1@{second},2@{first}",
            )
        )

    assert re.fullmatch(
        r"penstock: voter (1|2) is configured at 127.0.0.1:\d+, but node (1|2) listens there", line
    )


def test_nodes_that_disagree_about_their_voters_found_nothing(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    with closing(PortReservations({name: Address("127.0.0.1", 0) for name in names})) as reserved:
        one, two, three = (reserved[name] for name in names)
        first = NodeProcess(tmp_path / "1", "node.id=1", f"cluster.voters=1@{one},2@{two}")
        second = NodeProcess(tmp_path / "2", "node.id=2", f"cluster.voters=1@{one},2@{two},3@{three}")
        first.launch()
        second.launch()
        try:
            # Whoever notices first ends; nobody is left whom the other could found anything with.
            ended = until(
                lambda: next((node for node in (first, second) if not node.is_running), None),
                "one of them notices",
            )
        finally:
            first.kill()
            second.kill()

    assert "was started with other voters" in ended.said()
    assert "quorum.bootstrapped" not in first.said() + second.said()


@pytest.mark.usefixtures("unharmed")
def test_a_node_on_the_data_directory_of_another_is_refused(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    # The node runs: a temporary file may be gone before it is copied.
    temporary = shutil.ignore_patterns("*.tmp")
    shutil.copytree(cluster.nodes[2].data_dir, tmp_path / "data", ignore=temporary)
    settings = [one for one in cluster.settings_of(3) if one.startswith(("node.", "cluster."))]

    line = refusal(NodeProcess(tmp_path / "data", *settings, f"listen.peer={cluster.listener(3, 'peer')}"))

    assert "node 2" in line or "cannot listen" in line


@pytest.mark.usefixtures("unharmed")
def test_a_directory_that_is_in_use_is_refused(cluster: ClusterProcesses) -> None:
    line = refusal(
        NodeProcess(cluster.nodes[1].data_dir, "node.id=1", f"cluster.voters=1@{cluster.listener(1, 'peer')}")
    )

    assert "locked" in line


def test_a_member_that_nobody_could_reach_is_refused(tmp_path: Path) -> None:
    with closing(PortReservations({name: Address("127.0.0.1", 0) for name in ("one", "two")})) as reserved:
        voters = f"cluster.voters=1@{reserved['one']},2@{reserved['two']}"
        nodes = [NodeProcess(tmp_path / str(number), f"node.id={number}", voters) for number in (1, 2)]
        for node in nodes:
            node.launch()
        for node in nodes:
            node.await_ready()
        for node in nodes:
            node.kill()
        nodes[0].events.unlink()

        line = refusal(NodeProcess(tmp_path / "1", "node.id=1"))

    assert line.startswith("penstock: this data directory belongs to a cluster with other nodes")
