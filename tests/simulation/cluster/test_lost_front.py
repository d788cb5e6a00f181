"""A front of all logs that goes at the very end, when nothing else happens any more."""

import pytest

from penstock.core.model import MILLISECOND, SECOND, Offset
from penstock.sim.cluster import run as cluster_run
from penstock.sim.cluster import run_cluster
from penstock.sim.cluster.options import TOPIC, SimulatedClusterOptions
from penstock.sim.cluster.world import ClusterWorld
from penstock.sim.faults import FaultKind, FaultPlan
from penstock.sim.network import FAIR

PLAN = FaultPlan((FaultKind.KILL,), 500 * MILLISECOND, SECOND, FAIR)


def test_a_log_that_starts_too_late_is_found_although_nobody_writes_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = cluster_run.judge

    def lose_front(cluster: ClusterWorld) -> list[str]:
        for log in cluster_run.logs_of(cluster, (TOPIC, 0)).values():
            log.delete_records(Offset(log.high_watermark // 2))
        return judge(cluster)

    monkeypatch.setattr(cluster_run, "judge", lose_front)

    verdict = run_cluster(1, SimulatedClusterOptions(plan=PLAN, partitions=1, faulty_ns=2 * SECOND))

    assert [anomaly for anomaly in verdict.anomalies if anomaly.startswith("deleted too much")]
