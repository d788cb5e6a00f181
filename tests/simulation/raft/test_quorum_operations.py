"""What an operator does to a running quorum: members come and go, leadership moves, reads are fresh."""

import pytest

from penstock.broker.cluster.raft_host import CommandOutcome, RaftQuorum
from penstock.core.metadata import ClusterIdSet
from penstock.core.model import MILLISECOND, SECOND, ApiError, ErrorKind
from penstock.core.raft import (
    AddLearner,
    Change,
    PromoteLearner,
    ProposalAccepted,
    ReadIndex,
    RemoveMember,
    TransferStarted,
)
from tests.simulation.raft.quorum_world import QuorumWorld


def leader_of(world: QuorumWorld) -> RaftQuorum:
    (name,) = world.leaders()
    return world.controllers[name].quorum


def changed(world: QuorumWorld, change: Change) -> CommandOutcome:
    """Ask whoever leads until it is done, as an operator's tool would."""
    outcomes: list[CommandOutcome] = []
    for _ in range(100):
        if len(world.leaders()) == 1:
            leader_of(world).change_members(change, outcomes.append)
            world.world.run(200 * MILLISECOND)
            if outcomes and isinstance(outcomes[-1], ProposalAccepted):
                return outcomes[-1]
        world.world.run(100 * MILLISECOND)
    return outcomes[-1]


def running(seed: int, count: int = 3, founders: int = 3) -> QuorumWorld:
    world = QuorumWorld(seed, count, founders=founders)
    world.world.start_all()
    world.world.run(2 * SECOND)
    return world


@pytest.mark.parametrize("seed", range(5))
def test_a_quorum_of_one_grows_to_three_and_moves_away_from_its_first_voter(seed: int) -> None:
    world = running(seed, founders=1)
    for name in ("c2", "c3"):
        changed(world, AddLearner(world.member(name)))
        assert isinstance(changed(world, PromoteLearner(world.member(name))), ProposalAccepted)

    changed(world, RemoveMember(world.member("c1")))
    world.world.nodes["c1"].kill()
    world.world.run(3 * SECOND)

    (leader,) = world.leaders()
    assert leader in ("c2", "c3")
    known = len(world.journal.blocks)
    world.world.run(SECOND)
    assert len(world.journal.blocks) > known
    assert world.journal.anomalies == []
    assert world.journal.checker.anomalies == []
    assert world.world.failures == []


@pytest.mark.parametrize("seed", range(5))
def test_members_change_while_nodes_lose_power(seed: int) -> None:
    world = running(seed, count=4)
    luck = world.world.random("power")
    for change in (AddLearner(world.member("c4")), PromoteLearner(world.member("c4"))):
        victim = world.world.nodes[luck.choice(("c1", "c2", "c3"))]
        victim.cut_power()
        changed(world, change)
        victim.start()
        world.world.run(SECOND)

    changed(world, RemoveMember(world.member("c2")))
    world.world.run(3 * SECOND)

    voters = leader_of(world).raft.configuration.voters
    assert sorted(voter.node_id for voter in voters) == [1, 3, 4]
    assert world.journal.anomalies == []
    assert world.journal.checker.anomalies == []
    assert world.world.failures == []


def test_leadership_is_handed_over_and_work_goes_on() -> None:
    world = running(3)
    (before,) = world.leaders()
    target = next(name for name in world.controllers if name != before)
    outcomes: list[CommandOutcome] = []

    leader_of(world).transfer(world.member(target), outcomes.append)
    world.world.run(300 * MILLISECOND)

    assert outcomes == [TransferStarted()]
    assert world.leaders() == [target]
    assert world.journal.anomalies == []


def test_a_leader_that_hands_over_takes_no_proposals() -> None:
    world = running(3)
    (before,) = world.leaders()
    target = next(name for name in world.controllers if name != before)
    quorum = leader_of(world)
    outcomes: list[CommandOutcome] = []
    assert quorum.leader_epoch is not None
    end = quorum.end

    quorum.transfer(world.member(target), outcomes.append)
    refused = quorum.propose((ClusterIdSet("other"),), quorum.leader_epoch)

    assert refused == ApiError(ErrorKind.QUORUM_BUSY, "leadership is being handed over")
    assert quorum.end == end


def test_a_leader_reads_fresh_and_one_that_was_cut_off_does_not_read_at_all() -> None:
    world = running(4)
    (leader,) = world.leaders()
    quorum = world.controllers[leader].quorum
    outcomes: list[CommandOutcome] = []

    quorum.read(outcomes.append)
    world.world.run(100 * MILLISECOND)
    (fresh,) = outcomes
    for other in world.controllers:
        world.world.network.cut(leader, other)
        world.world.network.cut(other, leader)
    quorum.read(outcomes.append)
    world.world.run(2 * SECOND)

    assert isinstance(fresh, ReadIndex)
    assert isinstance(outcomes[1], ApiError)
    assert outcomes[1].kind is ErrorKind.NOT_CONTROLLER


def test_a_follower_refuses_what_only_a_leader_can_do() -> None:
    world = running(5)
    follower = next(name for name in world.controllers if name not in world.leaders())
    outcomes: list[CommandOutcome] = []

    world.controllers[follower].quorum.change_members(RemoveMember(world.member("c1")), outcomes.append)
    world.world.run(10 * MILLISECOND)

    assert [getattr(outcome, "kind", None) for outcome in outcomes] == [ErrorKind.NOT_CONTROLLER]
