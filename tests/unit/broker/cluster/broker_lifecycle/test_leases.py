"""A broker has the lease only while nobody else can have been given what it leads."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.broker.cluster import BrokerSessionOptions
from penstock.broker.lease import FOREVER
from penstock.core.model import MILLISECOND, NodeId
from penstock.sim.network import NetworkFaults
from tests.support.recorded_events import recorded_events
from tests.unit.broker.cluster.cluster_stage import ClusterStage, cluster_of, member_options, voters

SESSION_MS, LEASE_MS, HEARTBEAT_MS = 2_000, 1_980, 500


def number_of(name: str) -> NodeId:
    return NodeId(int(name[1:]))


def has_lease(stage: ClusterStage, name: str) -> bool:
    return stage.incarnations[name].has_lease


def cut_off(stage: ClusterStage, name: str) -> None:
    for other in stage.options:
        if other != name:
            stage.world.network.cut(name, other)
            stage.world.network.cut(other, name)


def run_watching(stage: ClusterStage, duration_ms: int, look: Callable[[], None]) -> None:
    """Let time pass, and look at every event."""

    def watch() -> bool:
        look()
        return False

    stage.world.run(duration_ms * MILLISECOND, watch)
    assert not stage.world.failures, stage.world.failures


@pytest.mark.parametrize("seed", range(3))
def test_in_a_calm_cluster_every_broker_has_the_lease_all_the_time(seed: int) -> None:
    stage = cluster_of(3, seed)
    without: list[str] = []

    run_watching(
        stage, 10_000, lambda: without.extend(name for name in stage.options if not has_lease(stage, name))
    )

    assert without == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("leads", [True, False])
def test_a_broker_that_is_cut_off_has_lost_its_lease_before_it_is_fenced(seed: int, leads: bool) -> None:
    stage = cluster_of(3, seed)
    victim = stage.leader() if leads else stage.followers()[0]
    others = [name for name in stage.options if name != victim]
    stage.run_ms(100 * seed)
    fenced: list[bool] = []

    def look() -> None:
        if not all(stage.image(name).is_live(number_of(victim)) for name in others):
            fenced.append(has_lease(stage, victim))

    cut_off(stage, victim)
    run_watching(stage, 6_000, look)

    assert fenced
    assert not any(fenced)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("leads", [True, False])
def test_a_process_that_stood_still_has_no_lease_when_it_goes_on(seed: int, leads: bool) -> None:
    stage = cluster_of(3, seed)
    victim = stage.leader() if leads else stage.followers()[0]
    others = [name for name in stage.options if name != victim]
    wrong: list[int] = []

    def look() -> None:
        # Whoever of them knows most.
        newest = max(others, key=lambda name: stage.member(name).controller.committed)
        is_fenced = not stage.image(newest).is_live(number_of(victim))
        if is_fenced and has_lease(stage, victim):
            wrong.append(stage.world.scheduler.now)

    stage.world.nodes[victim].pause()
    run_watching(stage, 20_000, look)
    stage.world.nodes[victim].resume()
    assert not has_lease(stage, victim)
    run_watching(stage, 5_000, look)

    assert wrong == []
    assert has_lease(stage, victim)


@pytest.mark.parametrize("seed", range(5))
def test_a_reply_that_waited_for_the_process_to_go_on_renews_nothing(seed: int) -> None:
    stage = cluster_of(3, seed)
    controller, victim = stage.leader(), stage.followers()[0]
    life = stage.incarnations[victim]
    sent = life.member.lease.until - LEASE_MS * MILLISECOND
    # The next heartbeat has left, and the reply is not there yet.
    stage.until(lambda: life.clock.now() > sent + HEARTBEAT_MS * MILLISECOND)
    wrong: list[int] = []

    def look() -> None:
        if not stage.image(controller).is_live(number_of(victim)) and life.has_lease:
            wrong.append(stage.world.scheduler.now)

    stage.world.nodes[victim].pause()
    run_watching(stage, 4_000, look)
    stage.world.nodes[victim].resume()
    run_watching(stage, 4_000, look)

    assert wrong == []
    assert life.has_lease


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_that_comes_back_while_it_is_being_fenced_gets_no_lease_before_it_is_unfenced(
    seed: int,
) -> None:
    stage = cluster_of(3, seed)
    controller, victim = stage.leader(), stage.followers()[0]
    resumed: list[bool] = []
    wrong: list[int] = []

    def look() -> None:
        if recorded.named("broker.fenced") and not resumed:
            resumed.append(True)
            stage.world.nodes[victim].resume()
        if not stage.image(controller).is_live(number_of(victim)) and has_lease(stage, victim):
            wrong.append(stage.world.scheduler.now)

    for name in stage.options:
        # The fencing takes longer to be committed than the heartbeat to be answered.
        stage.world.nodes[name].pace.slowness = 20
    with recorded_events() as recorded:
        stage.world.nodes[victim].pause()
        run_watching(stage, 4_000, look)

    assert resumed
    assert wrong == []
    assert has_lease(stage, victim)


@pytest.mark.parametrize("seed", range(20))
def test_a_broker_has_no_lease_before_it_knows_all_that_was_decided_while_it_had_none(seed: int) -> None:
    stage = cluster_of(3, seed)
    controller, victim = stage.leader(), stage.followers()[0]
    stage.world.nodes[victim].pause()
    stage.until(lambda: not stage.image(controller).is_live(number_of(victim)))
    fenced_at = stage.member(controller).controller.committed
    wrong: list[int] = []

    def look() -> None:
        if has_lease(stage, victim) and stage.member(victim).controller.committed < fenced_at:
            wrong.append(stage.world.scheduler.now)

    # Some of the metadata is lost on the way, while a heartbeat's reply arrives.
    stage.world.network.network_faults = NetworkFaults(loss=0.5)
    stage.world.nodes[victim].resume()
    run_watching(stage, 3_000, look)
    stage.world.network.network_faults = NetworkFaults()
    stage.until(lambda: stage.is_live("n1", "n2", "n3") and has_lease(stage, victim))

    assert wrong == []


@pytest.mark.parametrize("seed", range(5))
def test_an_old_controller_grants_no_lease_beyond_the_session_that_the_new_one_grants(seed: int) -> None:
    stage = cluster_of(5, seed)
    old = stage.leader()
    kept, *others = stage.followers()
    # Two nodes on one side, one of them the controller: the other hears nothing of the new one.
    for other in others:
        for one in (old, kept):
            stage.world.network.cut(one, other)
            stage.world.network.cut(other, one)
    began = stage.world.scheduler.now
    ended: dict[str, int] = {}

    def look() -> None:
        for name in (old, kept):
            if not has_lease(stage, name):
                ended.setdefault(name, (stage.world.scheduler.now - began) // MILLISECOND)

    run_watching(stage, 6_000, look)

    assert ended.keys() == {old, kept}
    assert max(ended.values()) <= SESSION_MS


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("how", ["kill", "cut_power"])
def test_the_end_of_a_controller_costs_no_other_broker_its_lease(seed: int, how: str) -> None:
    stage = cluster_of(3, seed)
    old, others = stage.leader(), stage.followers()
    without: list[str] = []

    getattr(stage.world.nodes[old], how)()
    run_watching(stage, 6_000, lambda: without.extend(name for name in others if not has_lease(stage, name)))

    assert without == []


def test_the_only_voter_that_leads_needs_no_lease_from_anyone_until_there_is_a_second_voter() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, ()))
    stage.start()
    stage.until(stage.is_live)
    assert stage.member("n1").lease.until == FOREVER

    stage.add(member_options(2, voters(1, 2)))
    stage.start("n2")
    stage.until(lambda: stage.voters("n1") == [1, 2] and stage.is_live())

    assert stage.member("n1").lease.until != FOREVER
    assert has_lease(stage, "n1")
    assert has_lease(stage, "n2")


def test_a_broker_that_stops_gives_up_its_lease_before_it_is_fenced() -> None:
    stage = cluster_of(3)
    victim = stage.followers()[0]
    seen: list[bool] = []

    def look() -> None:
        if not stage.image(stage.leader()).is_live(number_of(victim)):
            seen.append(has_lease(stage, victim))

    stage.world.nodes[victim].stop()
    run_watching(stage, 1_000, look)

    assert seen
    assert not any(seen)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("victim", "session_ms"), [("n1", 6_000), ("n2", 6_000), ("n3", 1_000)])
def test_a_broker_with_a_session_of_its_own_has_lost_its_lease_before_it_is_fenced(
    seed: int, victim: str, session_ms: int
) -> None:
    stage = ClusterStage(seed)
    sessions = {"n1": 6_000, "n2": 6_000, "n3": 1_000}
    for number in (1, 2, 3):
        options = BrokerSessionOptions(heartbeat_ms=400, session_ms=sessions[f"n{number}"])
        stage.add(replace(member_options(number, voters(1, 2, 3)), sessions=options))
    stage.start()
    stage.until(stage.is_live)
    others = [name for name in stage.options if name != victim]
    cut_at = stage.world.scheduler.now
    fenced: list[tuple[int, bool]] = []

    def look() -> None:
        if not all(stage.image(name).is_live(number_of(victim)) for name in others):
            since_ms = (stage.world.scheduler.now - cut_at) // MILLISECOND
            fenced.append((since_ms, has_lease(stage, victim)))

    # Whoever leads by then counts with the broker's own session, not with that of its own broker.
    cut_off(stage, victim)
    run_watching(stage, 20_000, look)

    assert fenced
    assert fenced[0][0] >= session_ms - 500
    assert not any(leased for _, leased in fenced)
