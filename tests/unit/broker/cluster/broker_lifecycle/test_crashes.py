"""What a crash costs a broker that does not wait for syncs: nothing, unless the machine went down too."""

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.broker.cluster import BrokerRegistration
from penstock.core.metadata import CreateTopic, ReplicaAssignment
from penstock.core.model import NodeId, PartitionIndex, TopicId
from penstock.sim.node import SimulatedNode
from tests.unit.broker.cluster.cluster_stage import ClusterStage, member_options, voters


def unsynced_cluster() -> ClusterStage:
    """Three brokers in fsync mode `interval`, and a topic that each has a replica of."""
    stage = ClusterStage()
    for number in (1, 2, 3):
        registration = BrokerRegistration(NodeId(number), (), synced=False)
        stage.add(replace(member_options(number, voters(1, 2, 3)), registration=registration))
    stage.start()
    stage.until(stage.is_live)
    placed = (ReplicaAssignment(PartitionIndex(0), (NodeId(1), NodeId(2), NodeId(3))),)
    configs = (("min.insync.replicas", "3"),)
    stage.submit("n1", CreateTopic("t", TopicId(UUID(int=5)), assignments=placed, configs=configs))
    return stage


@pytest.mark.parametrize(
    ("crash", "eligible"),
    [(SimulatedNode.kill, True), (SimulatedNode.cut_power, False)],
    ids=["process", "machine"],
)
def test_a_replica_stays_eligible_if_only_its_process_ended(crash: object, eligible: bool) -> None:
    stage = unsynced_cluster()
    victim = stage.followers()[0]
    number = stage.options[victim].registration.node_id
    assert callable(crash)
    crash(stage.world.nodes[victim])

    stage.start(victim)
    stage.until(stage.is_live)

    state = stage.image(stage.leader()).partition("t", 0)
    assert state is not None
    assert (number in state.complete) is eligible


def test_a_start_that_ended_before_it_registered_hides_no_loss() -> None:
    """The machine went down, and the first process after that ended at once."""
    stage = unsynced_cluster()
    victim = stage.followers()[0]
    number = stage.options[victim].registration.node_id
    machine = stage.world.nodes[victim]
    machine.cut_power()
    machine.start()
    stage.run_ms(1)
    machine.kill()

    stage.start(victim)
    stage.until(stage.is_live)

    state = stage.image(stage.leader()).partition("t", 0)
    assert state is not None
    assert number not in state.complete


def test_a_broker_whose_sync_failed_does_not_count_on_the_page_cache() -> None:
    stage = unsynced_cluster()
    victim = stage.followers()[0]
    number = stage.options[victim].registration.node_id
    stage.incarnations[victim].directory.forget_boot()
    stage.world.nodes[victim].kill()

    stage.start(victim)
    stage.until(stage.is_live)

    state = stage.image(stage.leader()).partition("t", 0)
    assert state is not None
    assert number not in state.complete
