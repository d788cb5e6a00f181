"""What a crash costs a broker that does not wait for syncs: nothing, unless the machine went down too."""

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.broker.cluster import BrokerRegistration
from penstock.broker.cluster.controller import Controller
from penstock.core.metadata import CreateTopic, ReplicaAssignment
from penstock.core.model import NodeId, PartitionIndex, TopicId
from penstock.sim.node import SimulatedNode
from tests.support.recorded_events import recorded_events
from tests.unit.broker.cluster.cluster_stage import ClusterStage, member_options, voters


def unsynced_cluster(*, synced: bool = False) -> ClusterStage:
    """Three brokers in fsync mode `interval`, and a topic that each has a replica of."""
    stage = ClusterStage()
    for number in (1, 2, 3):
        registration = BrokerRegistration(NodeId(number), (), synced=synced)
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


@pytest.mark.parametrize("is_old", [True, False])
def test_an_older_copy_of_a_directory_may_miss_records_however_they_were_synced(*, is_old: bool) -> None:
    stage = unsynced_cluster(synced=True)
    victim = stage.followers()[0]
    number = stage.options[victim].registration.node_id
    machine = stage.world.nodes[victim]
    machine.kill()
    copy = machine.disk.copy()
    # The broker runs once more, and may acknowledge something.
    stage.start(victim)
    stage.until(stage.is_live)
    machine.kill()
    if is_old:
        machine._cache = copy

    with recorded_events() as events:
        stage.start(victim)
        stage.until(stage.is_live)

    state = stage.image(stage.leader()).partition("t", 0)
    assert state is not None
    assert (number in state.complete) is not is_old
    assert len(events.named("broker.directory_is_old")) == is_old


def test_starts_that_ended_before_they_registered_do_not_make_a_directory_old() -> None:
    stage = unsynced_cluster(synced=True)
    victim = stage.followers()[0]
    machine = stage.world.nodes[victim]
    for pause_ms in range(0, 400, 25):
        machine.cut_power()
        machine.start()
        stage.run_ms(pause_ms)
    machine.cut_power()

    stage.start(victim)
    stage.until(stage.is_live)

    state = stage.image(stage.leader()).partition("t", 0)
    assert state is not None
    assert stage.options[victim].registration.node_id in state.complete


def test_an_older_copy_is_still_one_after_a_start_that_ended_before_it_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = unsynced_cluster(synced=True)
    victim = stage.followers()[0]
    number = stage.options[victim].registration.node_id
    machine = stage.world.nodes[victim]
    machine.kill()
    copy = machine.disk.copy()
    stage.start(victim)
    stage.until(stage.is_live)
    machine.kill()
    machine._cache = copy
    with recorded_events() as events, monkeypatch.context() as patch:
        # No registration gets through.
        patch.setattr(Controller, "submit", lambda *_: None)
        machine.start()
        stage.until(lambda: bool(events.named("broker.directory_is_old")))
        machine.kill()

    stage.start(victim)
    stage.until(stage.is_live)

    state = stage.image(stage.leader()).partition("t", 0)
    assert state is not None
    assert number not in state.complete
