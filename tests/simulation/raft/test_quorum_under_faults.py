"""Three controllers keep what they acknowledged, and the checkers notice those that do not."""

import pytest

from penstock.core.model import SECOND
from penstock.core.raft import Raft
from penstock.sim import CALM, FaultKind, FaultPlan
from penstock.sim.network import FAIR
from tests.property.raft import planted
from tests.simulation.raft.quorum_world import QuorumWorld, run_quorum

SEEDS = range(1, 17)
# Within so many seeds every planted bug must be found.
SEEDS_TO_FIND_A_BUG = 10


@pytest.mark.parametrize("seed", SEEDS)
def test_every_acknowledged_block_is_unique_and_known_to_all_in_the_end(seed: int) -> None:
    verdict = run_quorum(seed)

    assert verdict.anomalies == ()
    assert verdict.operations > 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_controllers_goes_through_the_same_code(count: int) -> None:
    verdict = run_quorum(3, count=count)

    assert verdict.anomalies == ()
    assert verdict.operations > 0


def test_a_seed_repeats_itself_exactly() -> None:
    assert run_quorum(11) == run_quorum(11)


def test_a_controller_that_was_away_for_long_gets_a_snapshot() -> None:
    quorum = QuorumWorld(5)
    world, journal = quorum.world, quorum.journal
    world.start_all()
    world.run(2 * SECOND)
    away = next(name for name in world.nodes if name not in quorum.leaders())
    world.nodes[away].kill()
    before = len(journal.blocks)
    world.run(60 * SECOND, lambda: len(journal.blocks) > before + 1_500)
    restored = journal.installed

    world.nodes[away].start()
    world.run(10 * SECOND, quorum.is_settled)

    assert quorum.judge() == []
    # Once from its own disk, and once from the leader.
    assert journal.installed == restored + 2


def test_a_new_leader_goes_on_within_two_seconds_when_the_old_one_dies() -> None:
    quorum = QuorumWorld(6)
    world, journal = quorum.world, quorum.journal
    world.start_all()
    world.run(2 * SECOND)
    (leader,) = quorum.leaders()
    known = len(journal.blocks)

    world.nodes[leader].cut_power()
    world.run(2 * SECOND)

    (successor,) = quorum.leaders()
    assert successor != leader
    assert len(journal.blocks) > known
    assert world.failures == []


def test_a_minority_decides_nothing_and_goes_on_when_it_is_whole_again() -> None:
    quorum = QuorumWorld(7)
    world, journal = quorum.world, quorum.journal
    world.start_all()
    world.run(2 * SECOND)
    (leader,) = quorum.leaders()
    for name in world.nodes:
        if name != leader:
            world.nodes[name].kill()
    world.run(SECOND)
    known = len(journal.blocks)

    world.run(5 * SECOND)

    assert len(journal.blocks) == known
    assert quorum.leaders() == []
    world.start_all()
    world.run(5 * SECOND)
    assert len(journal.blocks) > known


def found_within(seeds: int, raft_type: type[Raft], plan: FaultPlan | None = None) -> str | None:
    for seed in range(1, seeds + 1):
        verdict = run_quorum(seed, raft_type=raft_type, plan=plan, sync_max_ns=SYNC_MAX_NS)
        if not verdict.passed:
            return verdict.anomalies[0]
    return None


POWER_CUTS = FaultPlan((FaultKind.POWER_CUT_ALL, FaultKind.ISOLATE), SECOND // 4, SECOND // 4, FAIR)
# Slow disks leave time between a write and its sync.
SYNC_MAX_NS = SECOND // 10


@pytest.mark.parametrize(
    "bug", [planted.CountsItsOwnUnsyncedEntries, planted.AnswersBeforeTheSync, planted.VotesForShorterLogs]
)
def test_a_planted_bug_is_found_in_whole_controllers_too(bug: type[Raft]) -> None:
    assert found_within(SEEDS_TO_FIND_A_BUG, bug, POWER_CUTS) is not None


def test_a_calm_world_has_one_leader_and_no_second_election() -> None:
    quorum = QuorumWorld(8)
    quorum.world.network.network_faults = CALM.network_faults

    quorum.world.start_all()
    quorum.world.run(20 * SECOND)
    quorum.world.run(SECOND, quorum.is_settled)

    assert len(quorum.journal.leaders) == 1
    assert quorum.judge() == []
