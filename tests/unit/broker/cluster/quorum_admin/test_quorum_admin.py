"""The quorum is looked at and changed from any node."""

from uuid import UUID

import pytest

from penstock.broker.cluster import QuorumStatus
from penstock.core.metadata import CreatedTopic, CreateTopic, FenceBroker, UnregisterBroker
from penstock.core.model import ApiError, ErrorKind, NodeId, TopicId
from penstock.core.raft import Member
from penstock.runtime import Address
from tests.unit.broker.cluster.cluster_stage import ClusterStage, cluster_of, member_options, voters


def described(stage: ClusterStage, name: str) -> QuorumStatus | ApiError:
    answers: list[QuorumStatus | ApiError] = []
    stage.member(name).voters.describe(answers.append)
    stage.until(lambda: bool(answers))
    return answers[0]


def changed(stage: ClusterStage, name: str, what: str, member: Member) -> ApiError | None:
    answers: list[ApiError | None] = []
    desk = stage.member(name).voters
    if what == "add":
        desk.add_voter(member.node_id, member.directory_id, None, answers.append)
    else:
        desk.remove_voter(member.node_id, member.directory_id, answers.append)
    stage.until(lambda: bool(answers))
    return answers[0]


def member_at(stage: ClusterStage, name: str) -> Member:
    return stage.member(name).me


def with_learner(seed: int = 1) -> ClusterStage:
    stage = cluster_of(3, seed)
    stage.add(member_options(4, voters(1, 2, 3)))
    stage.start("n4")
    stage.until(lambda: stage.is_live("n4"))
    return stage


@pytest.mark.parametrize("name", ["n1", "n2", "n3", "n4"])
def test_every_node_says_how_the_quorum_stands(name: str) -> None:
    stage = with_learner()
    stage.run_ms(1_000)

    status = described(stage, name)

    assert isinstance(status, QuorumStatus)
    assert status.leader == stage.options[stage.leader()].registration.node_id
    assert [voter.node_id for voter in status.voters] == [1, 2, 3]
    assert [learner.node_id for learner in status.learners] == [4]
    assert all(one.log_end >= status.high_watermark for one in (*status.voters, *status.learners))
    assert [voter.address for voter in status.voters] == [Address(f"n{n}", 7000) for n in (1, 2, 3)]


def test_a_member_that_is_gone_is_shown_with_its_last_fetch_time() -> None:
    stage = cluster_of(3)
    victim = stage.followers()[0]
    stage.world.nodes[victim].kill()
    stage.run_ms(5_000)

    status = described(stage, stage.leader())

    assert isinstance(status, QuorumStatus)
    heard = {one.node_id: one.heard_at for one in status.voters}
    newest = max(at for at in heard.values() if at is not None)
    gone = heard[stage.options[victim].registration.node_id]
    assert gone is not None
    assert newest - gone >= 4_000


def test_without_a_leader_nobody_can_say() -> None:
    stage = cluster_of(3)
    survivor = stage.followers()[0]
    for name in ("n1", "n2", "n3"):
        if name != survivor:
            stage.world.nodes[name].kill()
    stage.run_ms(3_000)

    status = described(stage, survivor)

    assert isinstance(status, ApiError)
    assert status.kind is ErrorKind.NOT_CONTROLLER


@pytest.mark.parametrize("seed", range(4))
def test_a_learner_gets_a_vote_and_loses_it_again_on_a_running_cluster(seed: int) -> None:
    stage = with_learner(seed)
    newcomer = member_at(stage, "n4")
    asked = stage.followers()[0]

    added = changed(stage, asked, "add", newcomer)
    with_four = stage.voters(stage.leader())
    removed = changed(stage, asked, "remove", newcomer)

    assert (added, removed) == (None, None)
    assert with_four == [1, 2, 3, 4]
    # It is a broker still, so it gets the log.
    stage.until(lambda: stage.learners(stage.leader()) == [4])
    assert stage.voters(stage.leader()) == [1, 2, 3]


def test_a_leader_whose_vote_is_taken_hands_over_and_stays_a_broker() -> None:
    stage = cluster_of(3)
    old = stage.leader()
    number = stage.options[old].registration.node_id

    assert changed(stage, stage.followers()[0], "remove", member_at(stage, old)) is None
    others = [name for name in stage.options if name != old]
    stage.until(lambda: any(stage.member(name).controller.is_leading for name in others))
    stage.until(lambda: stage.learners(stage.leader()) == [number])
    created = stage.submit(old, CreateTopic("t", TopicId(UUID(int=5)), partitions=1))

    assert isinstance(created, CreatedTopic)
    assert number not in stage.voters(stage.leader())


def test_wishes_that_make_no_sense_are_refused() -> None:
    stage = cluster_of(3)
    stranger = Member(NodeId(8), UUID(int=8))

    twice = changed(stage, "n1", "add", member_at(stage, "n2"))
    unknown = changed(stage, "n2", "remove", stranger)

    assert twice is not None
    assert twice.kind is ErrorKind.DUPLICATE_VOTER
    assert unknown is not None
    assert unknown.kind is ErrorKind.VOTER_NOT_FOUND


def test_the_last_voter_stays() -> None:
    stage = cluster_of(1)

    refusal = changed(stage, "n1", "remove", member_at(stage, "n1"))

    assert refusal is not None
    assert refusal.kind is ErrorKind.INVALID_REQUEST


def test_a_learner_whose_broker_was_unregistered_is_removed() -> None:
    stage = with_learner()
    broker = stage.image("n1").broker(4)
    assert broker is not None
    stage.world.nodes["n4"].kill()
    stage.run_ms(1_000)

    stage.submit("n1", FenceBroker(broker.node_id, broker.epoch))
    stage.submit("n1", UnregisterBroker(broker.node_id))
    stage.until(lambda: stage.learners(stage.leader()) == [], 30)


def test_a_learner_that_is_away_is_kept_as_long_as_it_is_registered() -> None:
    stage = with_learner()

    stage.world.nodes["n4"].kill()
    stage.run_ms(30_000)

    assert stage.learners(stage.leader()) == [4]


def test_a_node_that_nobody_has_heard_of_does_not_become_a_voter() -> None:
    """It would take the majority from a cluster of one."""
    stage = cluster_of(1)
    nobody = Member(NodeId(9), UUID(int=9))

    error = changed(stage, "n1", "add", nobody)
    stage.run_ms(5_000)

    assert isinstance(error, ApiError)
    assert error.kind is ErrorKind.TIMED_OUT
    status = described(stage, "n1")
    assert isinstance(status, QuorumStatus)
    assert [voter.node_id for voter in status.voters] == [1]
    assert status.learners == (), "nor is it a learner that is waited for"
