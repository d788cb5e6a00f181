import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.cluster.admin_client import admin_client
from penstock.client import Endpoint, ProducerOptions, TopicAdmin, TopicProducer, reach
from penstock.node.options import PortReservations
from penstock.runtime import Address
from tests.support.clusters import ClusterProcesses, cluster_of, until
from tests.support.nodes import NodeProcess


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_topic_created_at_any_node_is_there_at_every_node(cluster: ClusterProcesses, number: int) -> None:
    name = f"from-{number}"

    host, port = cluster.address(number)
    TopicAdmin(Endpoint(f"{host}:{port}")).create(name, 3, 3, {})

    def leaders(asked: int) -> list[int]:
        return [one.leader_id for _, one in sorted(cluster.partitions(name, asked).items())]

    # A leader is named once it has opened its log.
    until(lambda: len(leaders(1)) == 3 and -1 not in leaders(1), f"{name} is led")
    until(lambda: leaders(1) == leaders(2) == leaders(3), f"{name} is seen alike")


def test_every_node_names_the_same_controller_and_brokers(cluster: ClusterProcesses) -> None:
    seen = [cluster.metadata(number, []) for number in cluster.nodes]

    assert len({one.controller_id for one in seen}) == 1
    assert [sorted(broker.node_id for broker in one.brokers) for one in seen] == [[1, 2, 3]] * 3


def test_a_broker_that_does_not_vote_joins_and_serves(cluster: ClusterProcesses, tmp_path: Path) -> None:
    with closing(PortReservations({"peer": Address("127.0.0.1", 0)})) as reserved:
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
    assert main(["cluster", "unregister", "4", "--bootstrap", cluster.bootstrap]) == 0
    until(lambda: 4 not in reach(Endpoint(cluster.bootstrap)).brokers, "it is forgotten")


def test_controllers_and_brokers_can_be_different_nodes(tmp_path: Path) -> None:
    with closing(
        PortReservations({"controller": Address("127.0.0.1", 0), "broker": Address("127.0.0.1", 0)})
    ) as at:
        voters = f"cluster.voters=1@{at['controller']}"
        controller = NodeProcess(tmp_path / "1", "node.id=1", "node.roles=controller", voters)
        broker = NodeProcess(
            tmp_path / "2", "node.id=2", "node.roles=broker", voters, f"listen.peer={at['broker']}"
        )
        controller.start()
        broker.start()
        try:
            TopicAdmin(Endpoint(broker.kafka)).create("served", 1, 1, {})
            seen = reach(Endpoint(broker.kafka))
        finally:
            codes = [broker.stop(), controller.stop()]

    assert sorted(seen.brokers) == [2]
    assert sorted(seen.topics) == ["served"]
    assert "kafka" not in controller.ready
    assert codes == [0, 0]


def test_a_node_that_lost_its_disk_takes_its_place_again(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        TopicAdmin(Endpoint(cluster.bootstrap)).create("kept", 3, 3, {})
        sender = TopicProducer(Endpoint(cluster.bootstrap), "kept", ProducerOptions())
        for number in range(100):
            sender.send(b"%d" % number)
        assert sender.finish().delivered == 100
        cluster.nodes[3].kill()
        shutil.rmtree(cluster.nodes[3].data_dir)

        cluster.nodes[3].start()
        cluster.await_in_sync("kept")

        until(partial(_votes, cluster, 3), "node 3 votes again")


def _votes(cluster: ClusterProcesses, number: int) -> bool:
    with admin_client(cluster.bootstrap) as door:
        return number in [one.replica_id for one in door.quorum().current_voters]
