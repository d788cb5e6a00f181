"""Three controllers keep what they acknowledged, and the checkers notice those that do not."""

import pytest

from penstock.broker.cluster.raft_storage import decode_snapshot, read_hard_state
from penstock.core.model import MILLISECOND, SECOND
from penstock.core.raft import Raft
from penstock.sim import CALM, FaultKind, FaultPlan
from penstock.sim.network import FAIR
from penstock.storage.disk import CrashableDisk
from penstock.storage.log.files import read_file
from tests.property.raft import planted
from tests.simulation.raft.quorum_world import QuorumWorld, run_quorum
from tests.support.recorded_events import recorded_events

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


def test_a_rotten_snapshot_on_the_leader_is_replaced_and_never_sent() -> None:
    quorum = QuorumWorld(5)
    world, journal = quorum.world, quorum.journal
    world.start_all()
    world.run(2 * SECOND)
    away = next(name for name in world.nodes if name not in quorum.leaders())
    world.nodes[away].kill()
    before = len(journal.blocks)
    world.run(60 * SECOND, lambda: len(journal.blocks) > before + 1_500)
    (leader,) = quorum.leaders()
    disk = world.nodes[leader].disk
    rotten: list[str] = []

    def rot() -> None:
        # Snapshots are taken all the time here: the one that will be sent is not known before.
        newest = max(path for path in disk.files() if path.startswith("meta/raft/0"))
        if newest not in rotten:
            rotten.append(newest)
            disk.flip_bit(newest, 8 * 40)

    with recorded_events() as seen:
        world.nodes[away].start()
        for _ in range(5_000):
            rot()
            world.run(MILLISECOND)
            if seen.named("metadata.snapshot_damaged"):
                break
        world.run(10 * SECOND, quorum.is_settled)

    assert quorum.judge() == []
    assert seen.named("metadata.snapshot_damaged")
    assert seen.named("quorum.snapshot_rejected") == []
    if rotten[-1] in disk.files():
        decode_snapshot(read_file(disk, rotten[-1]) or b"")


def acknowledged_by_two(seed: int) -> tuple[QuorumWorld, str, str]:
    """A quorum of which two have acknowledged what the third has not; all are down now."""
    quorum = QuorumWorld(seed)
    world, journal = quorum.world, quorum.journal
    world.start_all()
    world.run(2 * SECOND)
    (leader,) = quorum.leaders()
    voter, away = [name for name in world.nodes if name != leader]
    world.nodes[away].kill()
    before = len(journal.blocks)
    world.run(10 * SECOND, lambda: len(journal.blocks) > before + 20)
    for name in (leader, voter):
        world.nodes[name].kill()
    return quorum, voter, away


def log_tail(disk: CrashableDisk) -> str:
    return max(path for path in disk.files() if path.endswith(".log") and disk.size(path))


def is_doubtful(disk: CrashableDisk) -> bool:
    hard_state = read_hard_state(disk)
    return hard_state is None or hard_state.doubt is not None


@pytest.mark.parametrize("seed", [21, 22, 23])
def test_a_flipped_bit_in_a_voters_tail_loses_nothing_that_the_third_voter_never_had(seed: int) -> None:
    quorum, voter, away = acknowledged_by_two(seed)
    world, disk = quorum.world, quorum.world.nodes[voter].disk
    disk.flip_bit(log_tail(disk), 8 * (disk.size(log_tail(disk)) - 30))

    with recorded_events() as seen:
        world.start_all([voter, away])
        world.run(8 * SECOND)

        assert quorum.leaders() == []
        assert len(seen.named("quorum.log_damaged")) == 1
        assert len(seen.named("quorum.election_blocked")) >= 1
        world.start_all()
        world.run(10 * SECOND, quorum.is_settled)

    assert quorum.judge() == []
    assert seen.named("quorum.doubt_over")
    assert not is_doubtful(disk)


@pytest.mark.parametrize("seed", [21, 22, 23])
def test_a_voter_that_lost_its_hard_state_votes_again_when_all_others_have_answered(seed: int) -> None:
    quorum, voter, away = acknowledged_by_two(seed)
    world, disk = quorum.world, quorum.world.nodes[voter].disk
    disk.remove("meta/raft/ballot")

    world.start_all([voter, away])
    world.run(5 * SECOND)

    assert quorum.leaders() == []
    assert not disk.exists("meta/raft/ballot")
    world.start_all()
    world.run(10 * SECOND, lambda: quorum.is_settled() and not is_doubtful(disk))
    assert quorum.judge() == []
    assert disk.exists("meta/raft/ballot")
    assert not is_doubtful(disk)
    # It counts again: the other two need it when the third is gone.
    (now_leading,) = quorum.leaders()
    world.nodes[now_leading].kill()
    world.run(5 * SECOND, lambda: bool(quorum.leaders()))
    assert len(quorum.leaders()) == 1


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
