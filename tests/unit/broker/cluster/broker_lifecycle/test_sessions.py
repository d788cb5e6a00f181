"""Brokers that are gone or silent are fenced, and those that are there are not."""

from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest

from penstock.broker.cluster.broker_lifecycle import FENCES_PER_LOOK
from penstock.core.metadata import (
    CreatedTopic,
    CreateTopic,
    FenceBroker,
    MetadataImage,
    Ok,
    RegisterBroker,
    UnregisterBroker,
)
from penstock.core.metadata.decide_brokers import SUPPORTED_FEATURES
from penstock.core.model import NodeId, TopicId
from tests.unit.broker.cluster.cluster_stage import ClusterStage, cluster_of, member_options, voters


def number_of(name: str) -> NodeId:
    return NodeId(int(name[1:]))


def fenced_within_ms(stage: ClusterStage, name: str, limit_ms: int) -> bool:
    watcher = next(other for other in stage.incarnations if other != name and stage.world.nodes[other].is_up)
    started = stage.world.scheduler.now
    stage.world.run(limit_ms * 1_000_000, lambda: not stage.image(watcher).is_live(number_of(name)))
    assert stage.world.scheduler.now >= started
    return not stage.image(watcher).is_live(number_of(name))


@pytest.mark.parametrize("seed", range(5))
def test_a_process_that_ended_is_fenced_at_once(seed: int) -> None:
    stage = cluster_of(3, seed)
    victim = stage.followers()[0]

    stage.world.nodes[victim].kill()

    assert fenced_within_ms(stage, victim, 100)


@pytest.mark.parametrize("seed", range(5))
def test_the_leaders_own_end_is_noticed_as_fast(seed: int) -> None:
    stage = cluster_of(3, seed)
    victim = stage.leader()

    stage.world.nodes[victim].kill()

    assert fenced_within_ms(stage, victim, 1_000)


def test_a_machine_without_power_is_fenced_when_its_session_is_over_and_not_before() -> None:
    stage = cluster_of(3)
    victim = stage.followers()[0]

    stage.world.nodes[victim].cut_power()

    assert not fenced_within_ms(stage, victim, 1_400)
    assert fenced_within_ms(stage, victim, 1_400)


def test_a_node_that_was_paused_is_fenced_and_comes_back_by_itself_under_the_same_epoch() -> None:
    stage = cluster_of(3)
    victim = stage.followers()[0]
    epoch = stage.incarnations[victim].epoch

    stage.world.nodes[victim].pause()
    stage.run_ms(4_000)
    was_live = stage.image(stage.leader()).is_live(number_of(victim))
    stage.world.nodes[victim].resume()
    stage.until(lambda: stage.is_live("n1", "n2", "n3"))

    assert not was_live
    broker = stage.image("n1").broker(number_of(victim))
    assert broker is not None
    assert broker.epoch == epoch


def test_in_a_calm_cluster_nobody_is_ever_fenced() -> None:
    stage = cluster_of(3)
    fenced: list[int] = []

    def look(image: MetadataImage) -> None:
        fenced.extend(broker.node_id for broker in image.each_broker() if broker.fenced)

    for name in stage.options:
        stage.member(name).controller.subscribe(look)
    stage.run_ms(30_000)

    assert fenced == []


def test_a_new_leader_grants_everybody_a_session() -> None:
    stage = cluster_of(3)
    old = stage.leader()
    others = stage.followers()

    stage.world.nodes[old].kill()
    stage.until(lambda: any(stage.member(name).controller.is_leading for name in others))
    stage.run_ms(5_000)

    assert all(stage.image(others[0]).is_live(number_of(name)) for name in others)


def test_a_leader_that_was_cut_off_fences_nobody() -> None:
    stage = cluster_of(3)
    old = stage.leader()
    others = stage.followers()
    for other in others:
        stage.world.network.cut(old, other)
        stage.world.network.cut(other, old)

    stage.run_ms(8_000)
    stage.world.network.heal_all()
    stage.until(lambda: stage.is_live("n1", "n2", "n3"))

    assert all(stage.image(name).is_live(number_of(name)) for name in others)


def test_a_broker_that_was_fenced_by_mistake_unfences_itself() -> None:
    stage = cluster_of(3)
    victim = stage.followers()[0]
    broker = stage.image(victim).broker(number_of(victim))
    assert broker is not None

    stage.submit("n1", FenceBroker(broker.node_id, broker.epoch))
    stage.until(lambda: stage.is_live("n1", "n2", "n3"))


@pytest.mark.parametrize("how", ["replaced", "unregistered"])
def test_a_broker_whose_epoch_is_stale_ends(how: str) -> None:
    stage = cluster_of(3)
    victim = stage.followers()[0]
    directory_id = stage.world.nodes[victim].identity.directory_id
    cluster_id = stage.image("n1").cluster_id
    assert cluster_id is not None

    if how == "replaced":
        command = RegisterBroker(cluster_id, number_of(victim), directory_id, features=SUPPORTED_FEATURES)
        stage.submit(stage.leader(), command)
    else:
        stage.world.nodes[victim].pause()
        assert fenced_within_ms(stage, victim, 5_000)
        assert isinstance(stage.submit(stage.leader(), UnregisterBroker(number_of(victim))), Ok)
        stage.world.nodes[victim].resume()
    stage.run_ms(2_000)

    (failure,) = stage.world.failures
    assert f"{victim} died of BrokerReplaced: this broker's epoch" in failure


def test_each_start_is_a_new_epoch_and_leaderships_return_after_it() -> None:
    stage = cluster_of(3)
    created = stage.submit("n1", CreateTopic("t", TopicId(UUID(int=5)), partitions=6, replication_factor=3))
    victim = stage.followers()[0]
    before = stage.incarnations[victim].epoch

    stage.world.nodes[victim].kill()
    stage.run_ms(1_000)
    stage.start(victim)
    stage.until(lambda: stage.is_live("n1", "n2", "n3"))

    assert isinstance(created, CreatedTopic)
    after = stage.incarnations[victim].epoch
    assert before is not None
    assert after is not None
    assert after > before


def test_a_lone_node_is_live_without_peers() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, ()))

    stage.start()
    stage.until(stage.is_live)
    stage.run_ms(10_000)

    assert stage.is_live()
    assert voters() == ()


def watch_fencing(stage: ClusterStage, name: str) -> list[int]:
    """Every broker that `name` ever sees fenced from now on."""
    fenced: list[int] = []

    def look(image: MetadataImage) -> None:
        fenced.extend(broker.node_id for broker in image.each_broker() if broker.fenced)

    stage.member(name).controller.subscribe(look)
    return fenced


@pytest.mark.parametrize("stalled_ms", [1_900, 2_500, 10_000, 60_000])
@pytest.mark.parametrize("begin_ms", [0, 130, 260, 390])
def test_a_lone_node_that_stood_still_does_not_fence_itself(stalled_ms: int, begin_ms: int) -> None:
    stage = ClusterStage()
    stage.add(member_options(1, ()))
    stage.start()
    stage.until(stage.is_live)
    fenced = watch_fencing(stage, "n1")
    stage.run_ms(begin_ms)

    stage.world.nodes["n1"].pause()
    stage.run_ms(stalled_ms)
    stage.world.nodes["n1"].resume()
    stage.run_ms(5_000)

    assert fenced == []


def sole_controller(seed: int = 1) -> ClusterStage:
    """Three brokers, of which the first is the only controller."""
    stage = ClusterStage(seed)
    for number in (1, 2, 3):
        stage.add(replace(member_options(number, voters(1)), is_controller=number == 1))
    stage.start()
    stage.until(stage.is_live)
    return stage


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stalled_ms", [2_500, 10_000])
def test_a_controller_that_stood_still_blames_nobody_for_it(seed: int, stalled_ms: int) -> None:
    stage = sole_controller(seed)
    fenced = watch_fencing(stage, "n1")

    # Whatever the others sent meanwhile is lost: their links ended, say.
    stage.world.nodes["n1"].pause()
    for other in ("n2", "n3"):
        stage.world.network.cut(other, "n1")
    stage.run_ms(stalled_ms)
    stage.world.nodes["n1"].resume()
    stage.world.network.heal_all()
    stage.run_ms(5_000)

    assert fenced == []
    assert stage.is_live()


def test_a_broker_that_ended_while_the_controller_stood_still_is_fenced_a_session_later_at_most() -> None:
    stage = sole_controller()

    stage.world.nodes["n1"].pause()
    stage.run_ms(1_000)
    stage.world.nodes["n2"].cut_power()
    stage.run_ms(9_000)
    stage.world.nodes["n1"].resume()

    assert fenced_within_ms(stage, "n2", 2_500)
    assert stage.image("n1").is_live(NodeId(3))


def test_brokers_that_fall_silent_together_are_fenced_a_few_per_turn() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, ()))
    stage.start("n1")
    stage.until(lambda: stage.is_live("n1"))
    controller = stage.member("n1").controller
    assert controller.image.cluster_id is not None
    for number in range(2, 30):
        stage.submit(
            "n1",
            RegisterBroker(
                controller.image.cluster_id,
                NodeId(number),
                UUID(int=number),
                features=SUPPORTED_FEATURES,
                fenced=False,
            ),
        )
    live: list[int] = [len(controller.image.live_brokers())]
    controller.subscribe(lambda image: live.append(len(image.live_brokers())))

    stage.run_ms(3_000)

    assert (live[0], live[-1]) == (29, 1)
    assert max(before - after for before, after in pairwise(live)) == FENCES_PER_LOOK
