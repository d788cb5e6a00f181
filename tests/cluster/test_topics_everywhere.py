import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from penstock.app.addresses import Reservations
from penstock.client import Endpoint, Topics, reach
from penstock.runtime import Address
from tests.support.clusters import ClusterProcesses, cluster_of, until
from tests.support.nodes import NodeProcess


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_topic_created_at_any_node_is_there_at_every_node(cluster: ClusterProcesses, number: int) -> None:
    name = f"from-{number}"

    host, port = cluster.address(number)
    Topics(Endpoint(f"{host}:{port}")).create(name, 3, 3, {})

    seen = [
        until(partial(cluster.partitions, name, asked), f"{name} at node {asked}") for asked in cluster.nodes
    ]
    assert [sorted(found) for found in seen] == [[0, 1, 2]] * 3
    assert [[found[index].leader_id for index in range(3)] for found in seen] == [
        [seen[0][index].leader_id for index in range(3)]
    ] * 3
    assert sorted(seen[0][index].leader_id for index in range(3)) == [1, 2, 3]


def test_every_node_names_the_same_controller_and_brokers(cluster: ClusterProcesses) -> None:
    seen = [cluster.metadata(number, []) for number in cluster.nodes]

    assert len({one.controller_id for one in seen}) == 1
    assert [sorted(broker.node_id for broker in one.brokers) for one in seen] == [[1, 2, 3]] * 3


def test_status_says_that_a_cluster_is_well(cluster: ClusterProcesses) -> None:
    command = [sys.executable, "-m", "penstock.cli", "cluster", "status", "--json"]
    done = subprocess.run(
        [*command, "--bootstrap", cluster.bootstrap], check=False, capture_output=True, text=True
    )

    shown = json.loads(done.stdout)
    assert done.returncode == 0
    assert [(one["node_id"], one["state"]) for one in shown["brokers"]] == [
        (1, "running"),
        (2, "running"),
        (3, "running"),
    ]


def test_a_broker_that_does_not_vote_joins_and_serves(cluster: ClusterProcesses, tmp_path: Path) -> None:
    with closing(Reservations({"peer": Address("127.0.0.1", 0)})) as reserved:
        broker = NodeProcess(
            tmp_path / "data",
            *("node.id=4", "node.roles=broker", f"cluster.voters={cluster.voters}"),
            f"listen.peer={reserved['peer']}",
        )
        broker.start()
        try:
            seen = reach(Endpoint(broker.kafka))
        finally:
            code = broker.stop()

    assert sorted(seen.brokers) == [1, 2, 3, 4]
    assert code == 0


def test_controllers_and_brokers_can_be_different_nodes(tmp_path: Path) -> None:
    with closing(
        Reservations({"controller": Address("127.0.0.1", 0), "broker": Address("127.0.0.1", 0)})
    ) as at:
        voters = f"cluster.voters=1@{at['controller']}"
        controller = NodeProcess(tmp_path / "1", "node.id=1", "node.roles=controller", voters)
        broker = NodeProcess(
            tmp_path / "2", "node.id=2", "node.roles=broker", voters, f"listen.peer={at['broker']}"
        )
        controller.start()
        broker.start()
        try:
            Topics(Endpoint(broker.kafka)).create("served", 1, 1, {})
            seen = reach(Endpoint(broker.kafka))
        finally:
            codes = [broker.stop(), controller.stop()]

    assert sorted(seen.brokers) == [2]
    assert sorted(seen.topics) == ["served"]
    assert "kafka" not in controller.ready
    assert codes == [0, 0]
