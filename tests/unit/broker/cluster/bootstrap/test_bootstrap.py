"""Nodes that have never met become a cluster, and those that do not belong together do not."""

import pytest

from penstock.broker.cluster import BrokerSessionOptions, Voter
from penstock.core.model import SECOND, ApiError, NodeId
from penstock.core.raft import Member
from penstock.runtime import Address
from tests.unit.broker.cluster.cluster_stage import ClusterStage, cluster_of, member_options, voters


def failures_of(stage: ClusterStage, seconds: int = 10) -> list[str]:
    stage.world.run(seconds * SECOND, lambda: bool(stage.world.failures))
    return stage.world.failures


@pytest.mark.parametrize("seed", range(10))
def test_nodes_that_start_together_are_one_cluster_with_all_of_them_as_voters(seed: int) -> None:
    stage = cluster_of(3, seed)

    clusters = {stage.image(name).cluster_id for name in stage.options}
    assert len(clusters) == 1
    assert all(stage.voters(name) == [1, 2, 3] for name in stage.options)
    assert [broker.node_id for broker in stage.image("n1").live_brokers()] == [1, 2, 3]


def test_nothing_is_founded_before_the_last_voter_is_there() -> None:
    stage = ClusterStage()
    for number in (1, 2, 3):
        stage.add(member_options(number, voters(1, 2, 3)))

    stage.start("n1", "n2")
    stage.run_ms(20_000)
    waiting = [stage.incarnations[name].is_joined for name in ("n1", "n2")]
    stage.start("n3")
    stage.until(stage.is_live)

    assert waiting == [False, False]
    assert stage.voters("n1") == [1, 2, 3]


@pytest.mark.parametrize("seed", range(40))
def test_power_cuts_during_the_bootstrap_leave_one_cluster(seed: int) -> None:
    stage = ClusterStage(seed)
    for number in (1, 2, 3):
        stage.add(member_options(number, voters(1, 2, 3)))
    luck = stage.world.random("power")
    stage.start()

    for _ in range(3):
        stage.run_ms(luck.randint(1, 400))
        victim = stage.world.nodes[luck.choice(("n1", "n2", "n3"))]
        victim.cut_power()
        stage.run_ms(luck.choice((1, 50, 300)))
        victim.start()
    stage.until(stage.is_live, 60)

    assert {stage.image(name).cluster_id for name in stage.options} == {stage.image("n1").cluster_id}
    assert all(stage.voters(name) == [1, 2, 3] for name in stage.options)


def test_the_order_in_which_voters_are_listed_does_not_matter() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, voters(1, 2)))
    stage.add(member_options(2, voters(2, 1)))

    stage.start()

    stage.until(stage.is_live)


def test_nodes_with_different_voters_refuse_each_other() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, voters(1, 2)))
    stage.add(member_options(2, voters(1, 2, 3)))

    stage.start()

    assert "BootstrapFailed: voter" in failures_of(stage)[0]
    assert "was started with other voters" in failures_of(stage)[0]


def test_another_node_at_a_voters_address_is_refused() -> None:
    stage = ClusterStage()
    wrong = (Voter(NodeId(1), Address("n1", 7000)), Voter(NodeId(3), Address("n2", 7000)))
    stage.add(member_options(1, wrong))
    stage.add(member_options(2, voters(1, 2)))

    stage.start()

    assert "voter 3 is configured at n2:7000, but node 2 listens there" in failures_of(stage)[0]


def test_a_second_node_with_an_id_that_is_taken_ends_before_there_is_a_cluster() -> None:
    stage = ClusterStage()
    for number in (1, 2, 3):
        stage.add(member_options(number, voters(1, 2, 3)))
    stage.add(member_options(2, voters(1, 2, 3), "copy"), "copy")
    stage.start("n1", "n2")
    stage.run_ms(1_000)

    stage.start("copy")
    (failure,) = failures_of(stage)
    stage.world.failures.clear()
    stage.start("n3")
    stage.until(lambda: stage.is_live("n1", "n2", "n3"))

    assert "copy died of BootstrapFailed: node id 2 is taken" in failure


def test_a_second_node_with_an_id_that_is_taken_ends_when_there_is_a_cluster() -> None:
    stage = cluster_of(3)
    stage.add(member_options(2, voters(1, 2, 3), "copy"), "copy")

    stage.start("copy")
    (failure,) = failures_of(stage)

    assert (
        "copy died of BootstrapFailed: the cluster does not accept this node: node 2 is already running"
        in failure
    )
    assert stage.voters("n1") == [1, 2, 3]


def test_a_node_with_a_new_disk_waits_for_a_quorum_that_was_lost_meanwhile() -> None:
    stage = cluster_of(3)
    replaced, other = stage.followers()
    stage.world.nodes[replaced].kill()
    stage.world.nodes[replaced].replace_disk()
    stage.start(replaced)
    stage.run_ms(300)
    stage.world.nodes[other].kill()
    stage.run_ms(5_000)

    stage.start(other)
    stage.until(lambda: stage.is_live("n1", "n2", "n3"))

    assert not stage.world.failures


def test_a_node_of_another_cluster_is_turned_away() -> None:
    stage = cluster_of(3)
    stage.add(member_options(9, ()), "n9")
    stage.start("n9")
    stage.until(lambda: stage.is_live("n9"))
    stage.world.nodes["n9"].stop()
    stage.run_ms(3_000)

    stage.configure("n9", voters=(*voters(1, 2, 3),))
    stage.start("n9")
    (failure,) = failures_of(stage)

    assert "n9 died of BootstrapFailed: voter" in failure
    assert "belongs to another cluster than this data directory" in failure
    assert stage.learners("n1") == []


def test_a_data_directory_of_another_node_is_refused() -> None:
    stage = cluster_of(1)
    machine = stage.world.nodes["n1"]
    machine.kill()

    stage.configure("n1", registration=member_options(7, ()).registration)
    machine.start()
    stage.run_ms(100)

    # A storage error ends a node in order: the world does not call it an anomaly.
    assert not machine.is_up


def test_a_newcomer_joins_as_a_learner_and_is_a_broker() -> None:
    stage = cluster_of(3)
    stage.add(member_options(4, voters(1, 2, 3)))

    stage.start("n4")
    stage.until(lambda: stage.is_live("n4"))

    assert stage.learners("n4") == [4]
    assert stage.image("n1").is_live(4)
    assert stage.image("n4").cluster_id == stage.image("n1").cluster_id


def test_a_newcomer_that_lists_itself_gets_a_vote() -> None:
    stage = cluster_of(3)
    stage.add(member_options(4, voters(1, 2, 3, 4)))

    stage.start("n4")
    stage.until(lambda: stage.voters("n1") == [1, 2, 3, 4])

    assert stage.learners("n1") == []


def test_a_wish_for_a_vote_outlives_a_power_cut() -> None:
    stage = cluster_of(3)
    stage.add(member_options(4, voters(1, 2, 3, 4)))
    stage.start("n4")
    stage.until(lambda: stage.learners("n1") == [4])

    stage.world.nodes["n4"].cut_power()
    stage.run_ms(500)
    stage.start("n4")
    stage.until(lambda: stage.voters("n1") == [1, 2, 3, 4])


def test_a_broker_without_the_controllers_role_never_votes() -> None:
    stage = cluster_of(3)
    stage.add(member_options(4, voters(1, 2, 3, 4)))
    stage.configure("n4", is_controller=False)

    stage.start("n4")
    stage.until(lambda: stage.is_live("n4"))
    stage.run_ms(3_000)

    assert (stage.voters("n1"), stage.learners("n1")) == ([1, 2, 3], [4])


def test_a_node_that_is_no_broker_registers_none() -> None:
    stage = ClusterStage()
    for number in (1, 2, 3):
        stage.add(member_options(number, voters(1, 2, 3)))
    stage.configure("n3", is_broker=False)

    stage.start()
    stage.until(lambda: stage.is_live("n1", "n2") and stage.incarnations["n3"].is_joined)

    assert stage.incarnations["n3"].epoch is None
    assert [broker.node_id for broker in stage.image("n1").each_broker()] == [1, 2]
    assert stage.voters("n1") == [1, 2, 3]


def test_a_node_that_founded_alone_grows_to_three() -> None:
    stage = ClusterStage()
    stage.add(member_options(1, ()))
    stage.start("n1")
    stage.until(lambda: stage.is_live("n1"))

    for number in (2, 3):
        stage.add(member_options(number, voters(1, 2, 3)))
    stage.start("n2")
    stage.run_ms(500)
    stage.start("n3")
    stage.until(lambda: stage.voters("n1") == [1, 2, 3] and stage.is_live())

    stage.world.nodes["n1"].kill()
    stage.until(lambda: any(stage.member(name).controller.is_leading for name in ("n2", "n3")))


def test_a_voter_that_lost_its_disk_comes_back_with_a_new_one_and_votes_again() -> None:
    stage = cluster_of(3)
    victim = stage.followers()[0]
    old = stage.world.nodes[victim].identity
    stage.world.nodes[victim].cut_power()
    stage.world.nodes[victim].replace_disk()
    stage.run_ms(500)

    stage.start(victim)
    new = stage.world.nodes[victim].identity
    fresh = Member(NodeId(new.node_id), new.directory_id)
    stage.until(lambda: fresh in stage.configuration(stage.leader()).voters and stage.is_live(victim), 60)

    voters_now = stage.configuration(stage.leader()).voters
    assert Member(NodeId(old.node_id), old.directory_id) not in voters_now
    assert len(voters_now) == 3


def test_a_voter_on_a_new_disk_that_is_taken_out_before_it_is_registered_is_a_broker_later() -> None:
    stage = ClusterStage()
    for number in (1, 2, 3):
        stage.configure(
            stage.add(member_options(number, voters(1, 2, 3))),
            sessions=BrokerSessionOptions(session_ms=6_000),
        )
    stage.start()
    stage.until(stage.is_live)
    name = stage.followers()[0]
    stage.world.nodes[name].cut_power()
    stage.world.nodes[name].replace_disk()
    stage.start(name)
    identity = stage.world.nodes[name].identity
    member = Member(NodeId(identity.node_id), identity.directory_id)
    stage.until(lambda: member in stage.configuration(stage.leader()).voters)
    leader = stage.member(stage.leader())
    # The session of the broker on the former disk is not over, and lasts longer than a leader is remembered.
    assert stage.image(stage.leader()).is_live(member.node_id)

    answers: list[ApiError | None] = []
    leader.voters.remove_voter(member.node_id, member.directory_id, answers.append)
    stage.until(lambda: answers == [None])
    assert stage.image(stage.leader()).is_live(member.node_id)
    assert not stage.incarnations[name].is_joined
    stage.until(lambda: stage.is_live(name), 60)

    assert member in stage.configuration(stage.leader()).learners


def test_a_member_that_moved_is_found_at_its_new_address() -> None:
    stage = cluster_of(3)
    mover = stage.followers()[0]
    stage.world.nodes[mover].kill()
    stage.run_ms(3_000)

    # Others still look for it where it was; it tells them.
    number = stage.options[mover].registration.node_id
    others = tuple(voter for voter in voters(1, 2, 3) if voter.node_id != number)
    stage.configure(mover, listen=Address(mover, 7_777), voters=others)
    stage.start(mover)
    stage.until(lambda: stage.is_live(mover))

    assert stage.image(stage.leader()).is_live(number)
