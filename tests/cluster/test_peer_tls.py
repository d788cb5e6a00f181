"""Three nodes that prove to each other who they are: under load, with a kill, and with new certificates."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.security.certificates import create_client_certificate
from tests.cluster.secured import ProvenCluster
from tests.cluster.stage import SETTINGS, moment, stage_on
from tests.support.clusters import ClusterProcesses, until
from tests.support.nodes import NodeProcess


@pytest.fixture
def proven(tmp_path: Path) -> Iterator[ProvenCluster]:
    cluster = ProvenCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_nothing_is_lost_with_a_killed_node_and_new_certificates(proven: ProvenCluster) -> None:
    with stage_on(proven, rate=200) as stage:
        leader = proven.leader_of("watched")
        proven.nodes[leader].kill()
        stage.outage(moment(), range(3))
        proven.nodes[leader].start()
        stage.await_in_sync()

        for number in proven.nodes:
            proven.renew(number)
        for number in proven.nodes:
            until(partial(proven.lines_of, number, "peer.certificate_replaced"), "it has read them")
        other = leader % 3 + 1
        proven.nodes[other].kill()
        stage.outage(moment(), range(3))
        proven.nodes[other].start()
        stage.await_in_sync()
        verdict = stage.finish()

    assert verdict.anomalies == []
    assert verdict.acknowledged > 0


def test_a_process_without_the_certificate_of_a_node_does_not_join(
    proven: ProvenCluster, tmp_path: Path
) -> None:
    proven.nodes[3].kill()
    before = {number: len(proven.lines_of(number, "node.joined")) for number in (1, 2)}
    settings = ClusterProcesses.settings_of(proven, 3)
    stranger = NodeProcess(tmp_path / "stranger", *settings, *SETTINGS)
    stranger.launch()

    until(lambda: proven.lines_of(1, "it does not speak TLS"), "node 1 has refused it")
    assert "node.joined" not in stranger.events.read_text()
    stranger.kill()

    create_client_certificate(proven.certificates, "mallory")
    refused = NodeProcess(tmp_path / "mallory", *settings, *proven.tls("mallory"), *SETTINGS)
    refused.launch()
    assert refused.await_end() != 0
    assert "names no node id" in refused.events.read_text()
    assert {number: len(proven.lines_of(number, "node.joined")) for number in (1, 2)} == before
