import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from tests.support.clusters import ClusterProcesses, until


class Commands:
    """`penstock`, in this process, against one cluster."""

    def __init__(
        self, cluster: ClusterProcesses, shown: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.cluster = cluster
        self._shown = shown
        self._patch = patch

    def run(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._shown.readouterr()
        code = main(words)
        shown = self._shown.readouterr()
        return subprocess.CompletedProcess(words, code, shown.out, shown.err)

    def done(self, *words: str, stdin: bytes = b"") -> str:
        """Run what must succeed; returns its stdout."""
        ended = self.run(*words, stdin=stdin)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.done(*words, "--json"))

    def replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        return {index: tuple(one.replica_nodes) for index, one in self.cluster.partitions(topic).items()}


@pytest.fixture
def penstock(
    cluster: ClusterProcesses, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Commands:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", cluster.bootstrap)
    return Commands(cluster, capfd, monkeypatch)


def test_members_shows_who_votes_and_who_leads(penstock: Commands) -> None:
    members = [one for one in penstock.json("cluster", "members") if one["node_id"] <= 3]

    assert [one["node_id"] for one in members] == [1, 2, 3]
    assert sorted(one["role"] for one in members) == ["leader", "voter", "voter"]
    assert all(one["lag"] is not None and one["broker"] == "running" for one in members)


def test_a_voter_can_leave_and_come_back(penstock: Commands) -> None:
    voter = next(one for one in penstock.json("cluster", "members") if one["role"] == "voter")["node_id"]

    def role() -> str | None:
        members = {one["node_id"]: one["role"] for one in penstock.json("cluster", "members")}
        return members.get(voter)

    penstock.done("cluster", "remove-voter", str(voter))
    again = penstock.run("cluster", "remove-voter", str(voter))
    until(lambda: role() == "observer", f"node {voter} goes on as an observer")
    penstock.done("cluster", "add-voter", str(voter))

    assert (again.returncode, again.stderr) == (
        1,
        f"penstock: node {voter} is no voter: `penstock cluster members` shows them\n",
    )
    assert role() in ("voter", "leader")


def test_partitions_move_to_the_nodes_named_and_their_records_with_them(penstock: Commands) -> None:
    penstock.done("topic", "create", "moved", "--partitions", "2", "--rf", "1")
    penstock.done("produce", "moved", stdin=b"".join(b"record %d\n" % number for number in range(1000)))

    penstock.done("cluster", "reassign", "moved", "--to", "2,3", "--watch")
    spread = penstock.replicas("moved")
    penstock.done("cluster", "reassign", "moved:1", "--to", "1", "--watch", "--throttle", "100M")
    read = penstock.done("consume", "moved", "--from", "beginning", "--count", "1000")

    assert spread == {0: (2, 3), 1: (3, 2)}
    assert penstock.replicas("moved") == {0: (2, 3), 1: (1,)}
    assert len(read.splitlines()) == 1000
    assert penstock.json("cluster", "reassign") == []


def test_a_plan_from_a_file_is_carried_out(penstock: Commands, tmp_path: Path) -> None:
    penstock.done("topic", "create", "planned", "--partitions", "1", "--rf", "1")
    plan = tmp_path / "plan.json"
    rows = [{"topic": "planned", "partition": 0, "replicas": [3, 1, 2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))

    penstock.done("cluster", "reassign", "--file", str(plan), "--watch")

    assert penstock.replicas("planned") == {0: (3, 1, 2)}


def test_nodes_that_do_not_exist_are_refused_by_name(penstock: Commands) -> None:
    penstock.done("topic", "create", "stays", "--partitions", "1", "--rf", "1")

    refused = penstock.run("cluster", "reassign", "stays", "--to", "1,9")

    assert refused.returncode == 1
    assert refused.stderr.startswith("penstock: stays:0: ")
    assert refused.stderr.count("\n") == 1


def test_a_drained_node_leads_nothing_until_it_may_again(penstock: Commands) -> None:
    penstock.done("topic", "create", "led", "--partitions", "3", "--rf", "3")

    # What only this node has it goes on leading, and nobody waits for that.
    penstock.done("topic", "create", "lonely", "--partitions", "3", "--rf", "1")

    def leaders() -> list[int]:
        return [one.leader_id for one in penstock.cluster.partitions("led").values()]

    def state() -> str:
        brokers = penstock.json("cluster", "status")["brokers"]
        return next(str(one["state"]) for one in brokers if one["node_id"] == 2)

    try:
        penstock.done("cluster", "drain", "2", "--watch")
        drained, without = state(), leaders()
    finally:
        penstock.done("cluster", "drain", "2", "--undo")
    penstock.done("cluster", "elect", "--preferred", "led")

    assert (drained, 2 in without) == ("drained", False)
    assert state() == "running"
    until(lambda: 2 in leaders(), "node 2 leads again")


def test_status_says_what_a_stopped_node_takes_with_it(penstock: Commands) -> None:
    cluster = penstock.cluster
    penstock.done("topic", "create", "alone", "--partitions", "1", "--rf", "1")
    penstock.done("topic", "create", "shared", "--partitions", "1", "--rf", "3")
    holder = cluster.leader_of("alone")

    cluster.nodes[holder].stop()
    until(lambda: _offline(penstock) == ["alone"], "alone is offline")
    told = penstock.run("cluster", "status")
    found = json.loads(penstock.run("cluster", "status", "--json").stdout)
    forgotten = penstock.run("cluster", "unregister", "9")
    cluster.nodes[holder].start()
    until(lambda: not _offline(penstock), "alone is back")

    assert told.returncode == 1
    assert re.fullmatch(r"penstock: \d+ partitions? offline\n", told.stderr)
    assert {one["node_id"]: one["state"] for one in found["brokers"]}[holder] == "fenced"
    assert "shared" in {one["topic"] for one in found["under_replicated"]}
    assert forgotten.returncode == 1


def _offline(penstock: Commands) -> list[str]:
    shown = json.loads(penstock.run("cluster", "status", "--json").stdout)
    return sorted({one["topic"] for one in shown["offline"] if one["topic"] == "alone"})


def test_status_without_most_of_the_voters_says_that_it_may_be_old(penstock: Commands) -> None:
    cluster = penstock.cluster
    gone = [cluster.nodes[number] for number in (1, 2)]
    for node in gone:
        node.kill()

    told = until(lambda: _leaderless(penstock), "nobody leads the quorum")
    for node in gone:
        node.launch()
    for node in gone:
        node.await_ready()

    assert told.stderr.startswith("penstock: no controller: ")
    assert "controller none" in told.stdout
    until(lambda: penstock.run("cluster", "status").returncode == 0, "the cluster is whole again")


def _leaderless(penstock: Commands) -> "subprocess.CompletedProcess[str] | None":
    told = penstock.run("cluster", "status")
    return told if told.returncode == 1 and "no controller" in told.stderr else None
