"""The metrics pipeline, unchanged, where its executors are processes of their own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.clusters.standalone import StandaloneCluster
from tests.spark.exactness.processes import last_lines
from tests.spark.exactness.trial import QUICK, Trial, verdicts

RECORDS = 20_000


@pytest.fixture
def topics(topic_name: str) -> dict[str, str]:
    roles = {"inbound": "", "rollup": ".rollup", "dead_letter": ".dlq"}
    named = {f"topics.{role}": f"{topic_name}{suffix}" for role, suffix in roles.items()}
    return named | {"groups.ingest": topic_name, "lateness": "30m"}


@pytest.fixture
def trial_on(servers: str, topics: dict[str, str], tmp_path: Path) -> Iterator["Trials"]:
    trials = Trials(servers, topics, tmp_path)
    yield trials
    trials.end()


class Trials:
    """Makes a trial on a master, and ends it."""

    def __init__(self, servers: str, settings: dict[str, str], directory: Path) -> None:
        self._servers = servers
        self._settings = settings
        self._directory = directory
        self._made: list[Trial] = []

    def __call__(self, master: str) -> Trial:
        self._made.append(Trial(self._servers, self._directory, master, self._settings, QUICK))
        return self._made[-1]

    def end(self) -> None:
        for trial in self._made:
            trial.pipeline.end()


@pytest.mark.skipif("PENSTOCK_SPARK_KILLS" not in os.environ, reason="it takes minutes: make sparkkills")
@pytest.mark.timeout(1_800)  # several JVMs, one after the other, on a machine that may be busy
def test_a_standalone_cluster_runs_the_pipeline_unchanged(trial_on: Trials, tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path) as cluster:
        trial = trial_on(cluster.master)

        trial.send(RECORDS)
        checks = trial.judge()

        worked = {log.relative_to(tmp_path).parts[0] for log in cluster.executor_logs()}
        said = "\n".join(last_lines(log) for log in cluster.executor_logs())
    assert verdicts(checks) == [], said
    assert worked == {"worker-0", "worker-1"}


@pytest.mark.skipif("PENSTOCK_SPARK_KILLS" not in os.environ, reason="it takes minutes: make sparkkills")
@pytest.mark.timeout(1_800)  # several JVMs, one after the other, on a machine that may be busy
def test_a_local_cluster_runs_the_pipeline_unchanged(trial_on: Trials) -> None:
    trial = trial_on("local-cluster[2,1,1024]")

    trial.send(RECORDS)

    assert verdicts(trial.judge()) == []
