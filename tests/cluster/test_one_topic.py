from pathlib import Path

from tests.cluster.one_topic import GROUPS, Verdict, run


def has_seen_enough(verdict: Verdict) -> bool:
    """A run in which little was interrupted, or somebody got nothing, proves little."""
    workers = {f"{group}-{number}" for group, kinds in GROUPS.items() for number in range(len(kinds))}
    return (
        all(verdict.delivered[name] for name in workers)
        and verdict.deserted > 0
        and verdict.interruptions > 0
        and verdict.redeliveries > 0
    )


def test_a_topic_that_is_a_log_and_six_work_queues_loses_and_shares_nothing(tmp_path: Path) -> None:
    """The short form of `make onetopic`, which has one node, too (NODES=1)."""
    faults = ("leader", "gateway", "controller")
    verdict = run(tmp_path, 3, faults)

    assert verdict.anomalies == []
    assert verdict.kills == {"node": len(faults) - 1, "gateway": 1}
    assert has_seen_enough(verdict), verdict
