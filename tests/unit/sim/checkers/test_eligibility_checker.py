"""Whoever may be elected has what was acknowledged, and the checker says so if not."""

from penstock.sim.checkers.eligibility import EligibilityChecker, VoterLog


def kinds(checker: EligibilityChecker) -> list[str]:
    return [anomaly.partition(":")[0] for anomaly in checker.anomalies]


def test_replicas_that_have_everything_may_lead() -> None:
    checker = EligibilityChecker()
    checker.acknowledged("p", 5)

    checker.may_lead("p", "is in sync", {1: 5, 2: 7})
    checker.may_lead("another", "is in sync", {3: 0})

    assert checker.anomalies == []


def test_a_replica_that_lacks_what_was_acknowledged_is_named_once() -> None:
    checker = EligibilityChecker()
    checker.acknowledged("p", 5)
    checker.acknowledged("p", 3)

    checker.may_lead("p", "is eligible", {1: 5, 2: 4})
    checker.may_lead("p", "is eligible", {1: 5, 2: 4})

    assert kinds(checker) == ["ineligible"]
    assert checker.anomalies[0].startswith("ineligible: 2 is eligible of p ")


def test_a_voter_without_a_committed_entry_is_harmless_while_no_majority_would_elect_it() -> None:
    checker = EligibilityChecker()

    checker.committed(
        7, 3, {1: VoterLog(4, 7, True), 2: VoterLog(4, 7, True), 3: VoterLog(3, 9, has_entry=False)}
    )

    assert checker.anomalies == []


def test_a_voter_that_could_be_elected_without_a_committed_entry_is_an_anomaly() -> None:
    checker = EligibilityChecker()

    # Entry 2 of term 2 is on a majority, but 3 has an entry of term 3 in its place (figure 8 of Raft).
    checker.committed(
        2, 3, {1: VoterLog(2, 2, True), 2: VoterLog(2, 2, True), 3: VoterLog(3, 2, has_entry=False)}
    )

    assert kinds(checker) == ["uncommitted"]


def test_voters_that_are_down_have_no_vote() -> None:
    checker = EligibilityChecker()

    checker.committed(2, 3, {1: VoterLog(4, 2, True), 3: VoterLog(3, 2, has_entry=False)})

    assert checker.anomalies == []


def test_a_voter_in_doubt_elects_nobody_without_all_others() -> None:
    checker = EligibilityChecker()
    whole, short = VoterLog(4, 7, True), VoterLog(4, 6, has_entry=False)

    checker.committed(7, 3, {1: whole, 2: short, 3: short._replace(is_doubtful=True)})
    assert checker.anomalies == []

    checker.committed(7, 3, {1: whole, 2: short, 3: short})
    assert kinds(checker) == ["uncommitted", "uncommitted"]


def test_voters_in_doubt_that_all_lack_an_entry_could_elect_one_of_them() -> None:
    checker = EligibilityChecker()
    short = VoterLog(4, 6, has_entry=False, is_doubtful=True)

    checker.committed(7, 2, {1: short, 2: short})

    assert kinds(checker) == ["uncommitted", "uncommitted"]


def test_a_leader_that_does_not_wait_for_a_member_of_the_isr_is_an_anomaly() -> None:
    checker = EligibilityChecker()
    checker.counted("p", [1, 2], {1, 2, 3})
    assert checker.anomalies == []

    checker.counted("p", [1, 2, 3], {1, 2})

    assert checker.anomalies == ["not counted: 3 is in sync of p, and the leader waits for [1, 2] only"]


def test_a_reassignment_that_ends_before_its_new_replicas_are_in_sync_is_an_anomaly() -> None:
    checker = EligibilityChecker()

    checker.moved("orders", [4], isr=(2, 4))
    assert checker.anomalies == []
    checker.moved("orders", [4, 5], isr=(2, 4))

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["moved early"]
