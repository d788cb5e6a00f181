"""A quorum under every fault there is keeps its guarantees, and the checkers notice those that do not."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import MILLISECOND
from penstock.core.raft import LeaderGone, Raft
from tests.property.raft import planted
from tests.property.raft.raft_arena import OPTIONS, Arena
from tests.property.raft.raft_nemesis import DamageRun, RumourRun, Run
from tests.property.raft.raft_walk import DamageWalk, RumourWalk, Walk

RUNS = range(40)
WALKS = range(200)
# Within so many seeds, from 0 on, every planted bug must be found.
RUNS_TO_FIND_A_BUG = 120
WALKS_TO_FIND_A_BUG = 400


@pytest.mark.parametrize("tens", range(len(RUNS) // 10))
def test_one_leader_one_log_fresh_reads_and_recovery_whatever_the_network_does(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        run = Run(seed)

        anomalies = run.play()

        assert anomalies == [], f"run {seed}"


def test_the_runs_meet_every_fault_and_get_work_done() -> None:
    faults: Counter[str] = Counter()
    elections = committed = 0
    for seed in range(20):
        run = Run(seed)
        run.play()
        faults += run.counts
        elections += run.arena.checker.elections
        committed += run.arena.checker.committed

    assert len(faults) == 9
    assert elections > 60
    assert committed > 2_000


@pytest.mark.parametrize("fifties", range(len(WALKS) // 50))
def test_one_leader_one_log_and_fresh_reads_in_any_order_of_events(fifties: int) -> None:
    for seed in range(50 * fifties, 50 * fifties + 50):
        walk = Walk(seed)

        anomalies = walk.play()

        assert anomalies == [], f"walk {seed}"


@pytest.mark.parametrize("tens", range(2))
def test_rumours_of_a_leaders_end_break_no_guarantee_whatever_the_network_does(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        run = RumourRun(seed)

        anomalies = run.play()

        assert anomalies == [], f"run {seed}"


def test_rumours_of_a_leaders_end_break_no_guarantee_in_any_order_of_events() -> None:
    for seed in range(100):
        anomalies = RumourWalk(seed).play()

        assert anomalies == [], f"walk {seed}"


@pytest.mark.parametrize("tens", range(3))
def test_disks_that_lose_entries_and_hard_states_cost_nothing_committed(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        run = DamageRun(seed)

        anomalies = run.play()

        assert anomalies == [], f"run {seed}"
        assert run.counts["lose_tail"] > 0


@pytest.mark.parametrize("fifties", range(3))
def test_disks_that_lose_something_cost_nothing_committed_in_any_order_of_events(fifties: int) -> None:
    for seed in range(50 * fifties, 50 * fifties + 50):
        anomalies = DamageWalk(seed).play()

        assert anomalies == [], f"walk {seed}"


def failover_ms(seed: int, *, told: bool) -> int:
    """How long a quorum of three is without a leader after the process of its leader ended."""
    arena = Arena(f"gone/{seed}")
    arena.found(3)
    arena.run(3_000)
    (leader,) = arena.leaders()
    member, began = leader.member, arena.now
    leader.crash()
    for host in arena.hosts.values():
        if host is not leader and told:
            arena.after(arena.luck.random() * 3, host.step, LeaderGone(member))
    arena.run(10_000, lambda: bool(arena.leaders()))
    return (arena.now - began) // MILLISECOND


def test_a_leader_that_is_seen_to_end_is_replaced_long_before_patience_would_have_ended() -> None:
    seen = sorted(failover_ms(seed, told=True) for seed in range(100))
    missed = sorted(failover_ms(seed, told=False) for seed in range(100))

    # Nine of ten times nobody else campaigns in the same moment.
    assert seen[90] < OPTIONS.election_ms // 2 < missed[0]
    assert seen[-1] < 2 * OPTIONS.election_ms


def test_a_seed_repeats_itself_exactly() -> None:
    first, again = Run(7), Run(7)

    first.play()
    again.play()

    assert first.arena.steps == again.arena.steps
    assert first.arena.checker.content() == again.arena.checker.content()


def found_within(kind: type[Run] | type[Walk], bug: type[Raft], seeds: int) -> str | None:
    """The first anomaly; a failed assertion inside the machine is one."""
    for seed in range(seeds):
        try:
            anomalies = kind(seed, bug).play()
        except AssertionError as failure:
            return f"died: {failure}"
        if anomalies:
            return anomalies[0]
    return None


@pytest.mark.parametrize(
    ("bug", "anomaly"),
    [
        (planted.VotesForShorterLogs, "lacks committed"),
        (planted.CountsItsOwnUnsyncedEntries, "lacks committed"),
        (planted.AnswersBeforeTheSync, "lacks committed"),
        (planted.TruncatesOnEveryAppend, ""),
        (planted.ReadsWithoutAMajority, "stale read"),
        (planted.ReadsBeforeItsTermIsEstablished, "stale read"),
    ],
)
def test_a_planted_bug_is_found_within_120_runs(bug: type[Raft], anomaly: str) -> None:
    found = found_within(Run, bug, RUNS_TO_FIND_A_BUG)

    assert found is not None
    assert anomaly in found


@pytest.mark.parametrize(
    ("bug", "anomaly"),
    [
        (planted.VotesWithoutSyncing, "two leaders"),
        (planted.PersistsTheBallotLast, "two leaders"),
        (planted.VotesForEverybody, ""),
        (planted.KnowsMembersByNumberOnly, ""),
        (planted.CommitsEarlierTermsByCounting, ""),
        (planted.ReadsByAnOldRound, "stale read"),
        (planted.ChangesMembersBeforeItsFirstCommit, ""),
        (planted.ChangesSeveralMembersTogether, ""),
    ],
)
def test_a_subtle_planted_bug_is_found_within_400_walks(bug: type[Raft], anomaly: str) -> None:
    found = found_within(Walk, bug, WALKS_TO_FIND_A_BUG)

    assert found is not None
    assert anomaly in found


@pytest.mark.parametrize(
    ("bug", "anomaly"),
    [
        (planted.IsNeverInDoubt, "lacks committed"),
        (planted.CountsDoubtfulVotes, "lacks committed"),
        (planted.TrustsTheLeaderOfTheDoubtfulTerm, "lacks committed"),
        (planted.VotesAgainWithoutItsHardState, "two leaders"),
    ],
)
def test_a_planted_bug_in_the_handling_of_lost_data_is_found_within_120_runs(
    bug: type[Raft], anomaly: str
) -> None:
    found = found_within(DamageRun, bug, RUNS_TO_FIND_A_BUG)

    assert found is not None
    assert anomaly in found


def deposed(seed: int, raft_type: type[Raft]) -> bool:
    """Whether a leader that a majority hears loses its leadership to a member that does not hear it."""
    arena = Arena(f"lease/{seed}", raft_type)
    arena.found(3)
    arena.run(3_000)
    (leader,) = arena.leaders()
    assert leader.raft is not None
    term = leader.raft.term
    lonely = arena.luck.choice([number for number in arena.hosts if arena.hosts[number] is not leader])
    # It hears the other follower, but not the leader: its patience ends again and again.
    arena.cuts = {(leader.member.node_id, lonely): None}
    arena.run(arena.luck.randint(500, 2_000))
    arena.cuts.clear()
    arena.run(2_000)
    return leader.raft.term != term


@given(st.integers(0, 10_000))
def test_a_member_that_the_leader_does_not_reach_deposes_nobody(seed: int) -> None:
    assert not deposed(seed, Raft)


def test_without_the_lease_such_a_member_deposes_the_leader_within_five_seeds() -> None:
    assert any(deposed(seed, planted.DeposesAWorkingLeader) for seed in range(5))
