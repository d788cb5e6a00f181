"""Seeds that visit much: none of them shows an anomaly, and together they still visit what matters."""

import json

from penstock.sim.cluster import run_cluster
from tests.simulation.cluster.corpus import CORPUS

# What the guarantees are about. If a change of the code has dealt other cards, choose the corpus anew.
WANTED = (
    "answers.checked",
    "election.eligible",
    "election.lost",
    "election.moved",
    "elr.cleared",
    "elr.filled",
    "group.commits",
    "group.generations",
    "group.member_removed",
    "isr.grew",
    "isr.shrunk",
    "log.checkpoints",
    "log.rolls",
    "log.truncations",
    "metadata.snapshot_taken",
    "quorum.elections",
)


def test_the_corpus_shows_no_anomaly_and_visits_what_matters() -> None:
    runs = [run_cluster(int(seed)) for seed in json.loads(CORPUS.read_text())]

    assert [run.anomalies for run in runs] == [()] * len(runs)
    visited = {name for run in runs for name in run.visited}
    assert [name for name in WANTED if name not in visited] == []
