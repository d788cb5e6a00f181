"""Nodes of two versions in one cluster: replaced one by one, then upgraded for good."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeature,
    UpdateFeaturesResponse,
)
from tests.support.clusters import ClusterProcesses, cluster_of
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

METADATA, UNSAFE_DOWNGRADE = "metadata.version", 3
# The next version: it has one more field in a fact and in a command. It forgets to ask for the level
# where topics are called `noted…`, so that the command must be refused.
CHANGES = {
    "core/metadata/levels.py": {"HIGHEST_LEVEL = 26": "HIGHEST_LEVEL = 27"},
    "core/metadata/image.py": {
        "    reports: tuple[ReplicaReport, ...] = ()\n": (
            '    reports: tuple[ReplicaReport, ...] = ()\n    reason: Annotated[str, since(27)] = ""\n'
        ),
        "from uuid import UUID\n": (
            "from typing import Annotated\nfrom uuid import UUID\n"
            "from penstock.core.metadata.levels import since\n"
        ),
    },
    "core/metadata/commands.py": {
        "    election: ElectionType = ElectionType.PREFERRED\n": (
            "    election: ElectionType = ElectionType.PREFERRED\n"
            '    reason: str = field(default="", metadata=since_level(27))\n'
        ),
        "from penstock.core.values import dataclass\n": (
            "from penstock.core.values import dataclass\n"
            "from dataclasses import field\n"
            "from penstock.core.metadata.levels import since_level\n"
        ),
    },
    "core/metadata/elections.py": {
        '    changed = with_epochs(partition, after)\n    assert changed is not None, "an election that': (
            "    after = msgspec.structs.replace(after, reason=command.reason)\n"
            '    changed = with_epochs(partition, after)\n    assert changed is not None, "an election that'
        )
    },
    "server/kafka/handlers/elect_leaders.py": {
        "ElectLeader(topic, PartitionIndex(index), election)": (
            'ElectLeader(topic, PartitionIndex(index), election, "asked" * topic.startswith("noted"))'
        )
    },
}


class NextVersion:
    """A copy of the source with `CHANGES`."""

    def __init__(self, root: Path) -> None:
        source = Path(penstock.__file__).parent
        copy = root / "penstock"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name, changes in CHANGES.items():
            text = (copy / name).read_text()
            for before, after in changes.items():
                assert text.count(before) == 1, f"{name} has changed: {before!r}"
                text = text.replace(before, after)
            (copy / name).write_text(text)
        self.variables = {"PYTHONPATH": str(root)}

    def run(self, node: NodeProcess, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command of the next version, asked of one node."""
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli", *words, "--bootstrap", node.kafka],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **self.variables},
        )


@pytest.fixture(scope="module")
def next_version(tmp_path_factory: pytest.TempPathFactory) -> NextVersion:
    return NextVersion(tmp_path_factory.mktemp("next-version"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path) as running:
        yield running


def replace(cluster: ClusterProcesses, number: int, variables: dict[str, str]) -> NodeProcess:
    """Stop a node, and start it as another version."""
    node = cluster.nodes[number]
    assert node.stop() == 0
    node.variables = variables
    node.start()
    for topic in ("plain", "noted"):
        cluster.await_in_sync(topic)
    return node


def test_nodes_are_replaced_one_by_one_and_the_upgrade_is_made_for_good(
    cluster: ClusterProcesses, next_version: NextVersion
) -> None:
    nodes, new = cluster.nodes, next_version.variables
    for topic in ("plain", "noted"):
        made = next_version.run(nodes[1], "topic", "create", topic, "--partitions", "3")
        assert made.returncode == 0, made.stderr

    # Two versions side by side: everything works that both know, and nothing else.
    for number in nodes:
        node = replace(cluster, number, new)
        elected = next_version.run(node, "cluster", "elect", "--preferred", "plain")
        assert elected.returncode == 0, elected.stderr
        refused = next_version.run(node, "cluster", "elect", "--preferred", "noted")
        assert refused.returncode == 1
        assert f"ElectLeader needs {METADATA} 27, and the cluster is at 26" in refused.stdout
        if number < len(nodes):
            early = next_version.run(node, "cluster", "upgrade")
            assert early.returncode == 1
            assert METADATA in early.stderr

    # Until the upgrade, the way back is open.
    replace(cluster, 2, {})
    refused = next_version.run(nodes[1], "cluster", "upgrade")
    assert refused.returncode == 1
    replace(cluster, 2, new)

    upgraded = next_version.run(nodes[1], "cluster", "upgrade", "--json")
    assert upgraded.returncode == 0, upgraded.stderr
    [row] = [row for row in json.loads(upgraded.stdout) if row["feature"] == METADATA]
    assert row == {"feature": METADATA, "level": 26, "highest": 27, "outcome": "raised"}
    elected = next_version.run(nodes[1], "cluster", "elect", "--preferred", "noted", "--json")
    assert elected.returncode == 0, elected.stderr
    assert "elected" in [row["outcome"] for row in json.loads(elected.stdout)]

    # Now the version before refuses to start, and says why in one line.
    assert nodes[1].stop() == 0
    nodes[1].variables = {}
    before = nodes[1].events.stat().st_size
    nodes[1].launch()
    assert nodes[1].await_end() == 1
    lines = [line for line in nodes[1].events.read_text()[before:].splitlines() if "penstock:" in line]
    reason = f"the cluster runs at {METADATA} 27, and this version of Penstock knows levels up to 26"
    assert lines == [f"penstock: {reason}: start the newer version on this node"]
    nodes[1].variables = new
    nodes[1].start()
    cluster.await_in_sync("noted")

    assert downgrade(cluster, 1) == ErrorCode.INVALID_UPDATE_VERSION


def downgrade(cluster: ClusterProcesses, number: int) -> int:
    """Ask for a lower level; returns the error."""
    update = UpdateFeaturesRequestFeature(
        feature=METADATA, max_version_level=26, upgrade_type=UNSAFE_DOWNGRADE
    )
    wire = Wire(cluster.address(number))
    try:
        return wire.ask(
            UpdateFeaturesRequest(feature_updates=(update,)), UpdateFeaturesResponse, 2
        ).error_code
    finally:
        wire.close()
