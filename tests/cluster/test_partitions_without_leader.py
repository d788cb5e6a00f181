"""What the tools say of a topic while nobody leads some or all of its partitions."""

import re
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.client import Endpoint, TopicAdmin
from tests.support.clusters import cluster_of, until


def test_what_cannot_be_read_is_not_passed_over_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.consumer.LEADERLESS_SECONDS", 1)
    with cluster_of(tmp_path) as cluster:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", cluster.bootstrap)
        topics = TopicAdmin(Endpoint(cluster.bootstrap))
        topics.create("alone", 1, 1, {})
        topics.create("spread", 3, 1, {})
        lost = cluster.leader_of("alone")

        cluster.nodes[lost].kill()
        until(lambda: cluster.partitions("alone")[0].leader_id == -1, "nobody leads it")
        capfd.readouterr()

        assert main(["topic", "describe", "alone"]) == 0
        assert re.search(r"^0 +none ", capfd.readouterr().out, re.MULTILINE)
        for topic in ("alone", "spread"):
            assert main(["consume", topic]) == 1
            assert f"{topic}: no leader responds for partition" in capfd.readouterr().err
