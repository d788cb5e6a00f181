"""Three nodes that prove to each other who they are: under load, with a kill, and with new certificates."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.core.model import NodeId
from penstock.security.certificates import (
    create_authority,
    create_client_certificate,
    create_node_certificate,
)
from tests.cluster.stage import SETTINGS, moment, stage_on
from tests.support.clusters import ClusterProcesses, until
from tests.support.nodes import NodeProcess

HOSTS = ("localhost", "127.0.0.1")


class ProvenCluster(ClusterProcesses):
    """Nodes with a certificate each."""

    def __init__(self, root: Path, count: int = 3) -> None:
        self.certificates = root / "certs"
        create_authority(self.certificates, "nodes")
        for number in range(1, count + 1):
            create_node_certificate(self.certificates, NodeId(number), HOSTS)
        super().__init__(root, *SETTINGS, count=count)

    def settings_of(self, number: int) -> list[str]:
        return [*super().settings_of(number), *self.tls(f"node-{number}")]

    def tls(self, name: str) -> list[str]:
        files = self.certificates / name
        return [
            "security.peers=tls",
            f"security.tls.certificate={files}.pem",
            f"security.tls.key={files}.key",
            f"security.tls.authority={self.certificates}/ca.pem",
        ]

    def renew(self, number: int) -> None:
        """Put a new certificate in the place of a node's, as `mv` does it: key and certificate one by one."""
        fresh = self.certificates / "fresh"
        fresh.mkdir(exist_ok=True)
        for name in ("ca.pem", "ca.key"):
            if not (fresh / name).exists():
                os.link(self.certificates / name, fresh / name)
        for file in create_node_certificate(fresh, NodeId(number), HOSTS):
            os.replace(file, self.certificates / file.name)

    def lines_of(self, number: int, event: str) -> list[str]:
        return [line for line in self.nodes[number].events.read_text().splitlines() if event in line]


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
