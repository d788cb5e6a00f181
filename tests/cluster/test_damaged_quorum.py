"""Damaged files of the metadata quorum lose nothing acknowledged, and end no node but their own."""

import json
import re
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from penstock.client import Endpoint, TopicAdmin
from penstock.node.options import PortReservations
from penstock.runtime import Address
from tests.support.clusters import ClusterProcesses, cluster_of, until
from tests.support.nodes import NodeProcess

# Fewer partitions to look after than by default.
SETTINGS = ("groups.offsets_partitions=3",)
TOPIC = "acknowledged"
# Ten facts per change, and more entries than a leader keeps for members that lag.
CHANGES = 1_200
KEYS = (
    "retention.ms",
    "retention.bytes",
    "segment.ms",
    "max.message.bytes",
    "flush.messages",
    "flush.ms",
    "min.compaction.lag.ms",
    "delete.retention.ms",
    "index.interval.bytes",
    "file.delete.delay.ms",
)


def raft_directory(node: NodeProcess) -> Path:
    return node.data_dir / "meta" / "raft"


def flip_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    # In place: a running node may have the file open.
    with path.open("r+b") as file:
        file.write(content)


def events_of(node: NodeProcess, name: str) -> list[dict[str, object]]:
    lines = node.events.read_text().splitlines() if node.events.exists() else []
    found = (json.loads(line) for line in lines if line.startswith("{") and f'"{name}"' in line)
    return [event for event in found if event["event"] == name]


def kill(cluster: ClusterProcesses, *numbers: int) -> None:
    for number in numbers:
        cluster.nodes[number].kill()


def roles(cluster: ClusterProcesses) -> tuple[int, int, int]:
    """The controller, and the two others."""
    leader = cluster.controller()
    voter, away = [number for number in cluster.nodes if number != leader]
    return leader, voter, away


def create_without(cluster: ClusterProcesses, away: int) -> None:
    """Create topics that one voter never hears of; the first is not the last that was written."""
    kill(cluster, away)
    # The client must not try the node that is gone first.
    running = ",".join(str(cluster.listener(number, "kafka")) for number in cluster.running)
    topics = TopicAdmin(Endpoint(running))
    topics.create(TOPIC, 1, 2, {})
    topics.create("later", 1, 2, {})


def flip_bits(paths: Iterable[Path]) -> None:
    """Damage every copy of the topic's entry in these files."""
    places = [
        (path, found.start()) for path in paths for found in re.finditer(TOPIC.encode(), path.read_bytes())
    ]
    assert places
    for path, position in places:
        flip_bit(path, position)


def is_known(cluster: ClusterProcesses, number: int) -> bool:
    (topic,) = cluster.metadata(number, [TOPIC]).topics
    return topic.error_code == 0


def test_a_flipped_bit_in_one_voters_tail_is_restored_from_its_journal(tmp_path: Path) -> None:
    with cluster_of(tmp_path, *SETTINGS) as cluster:
        leader, voter, away = roles(cluster)
        create_without(cluster, away)
        kill(cluster, voter, leader)
        flip_bits(raft_directory(cluster.nodes[voter]).glob("log/*.log"))

        # These two are a majority, and one of them still knows the topic.
        for number in (voter, away):
            cluster.nodes[number].launch()
        for number in (voter, away):
            cluster.nodes[number].await_ready()

        assert is_known(cluster, voter)
        assert is_known(cluster, away)


def test_a_topic_that_one_voter_has_lost_and_another_never_saw_is_not_lost(tmp_path: Path) -> None:
    with cluster_of(tmp_path, *SETTINGS) as cluster:
        leader, voter, away = roles(cluster)
        create_without(cluster, away)
        kill(cluster, voter, leader)
        directory = raft_directory(cluster.nodes[voter])
        flip_bits(directory.glob("log/*.log"))
        flip_bits(directory.with_name("journal").glob("*.journal"))

        # These two are a majority, and neither has the topic.
        for number in (voter, away):
            cluster.nodes[number].launch()
        until(
            lambda: any(
                events_of(cluster.nodes[number], "quorum.election_blocked") for number in (voter, away)
            ),
            "an election fails because of the doubt",
        )
        cluster.nodes[leader].launch()
        for node in cluster.nodes.values():
            node.await_ready()

        assert all(is_known(cluster, number) for number in cluster.nodes)
        assert len(events_of(cluster.nodes[voter], "quorum.log_damaged")) == 1
        until(lambda: not (directory / "doubt").exists(), "the voter is sure again")


def test_a_voter_without_its_hard_state_takes_no_part_until_all_others_have_answered(tmp_path: Path) -> None:
    with cluster_of(tmp_path, *SETTINGS) as cluster:
        leader, voter, away = roles(cluster)
        create_without(cluster, away)
        kill(cluster, voter, leader)
        ballot = raft_directory(cluster.nodes[voter]) / "ballot"
        ballot.unlink()

        for number in (voter, away):
            cluster.nodes[number].launch()
        until(lambda: events_of(cluster.nodes[voter], "quorum.hard_state_lost"), "the loss is noticed")
        assert not ballot.exists()
        cluster.nodes[leader].launch()
        for node in cluster.nodes.values():
            node.await_ready()

        assert all(is_known(cluster, number) for number in cluster.nodes)
        until(lambda: ballot.exists() and not ballot.with_name("doubt").exists(), "it votes again")
        # It counts: without the leader of now, it takes this voter to elect another.
        kill(cluster, cluster.controller())
        cluster.controller()


def test_a_rotten_snapshot_on_the_leader_does_not_end_the_node_that_joins(tmp_path: Path) -> None:
    with cluster_of(tmp_path, *SETTINGS) as cluster:
        topics = TopicAdmin(Endpoint(cluster.bootstrap))
        topics.create("changed", 1, 3, {})
        for number in range(CHANGES):
            topics.alter_configs("changed", {key: str(1_000_000 + number) for key in KEYS})
        leader = cluster.nodes[cluster.controller()]
        newest = max(raft_directory(leader).glob("*.snapshot"))
        assert int(newest.stem) > 0
        flip_bit(newest, newest.stat().st_size // 2)

        with closing(PortReservations({"peer": Address("127.0.0.1", 0)})) as reserved:
            joining = NodeProcess(
                tmp_path / "node-4",
                *("node.id=4", "node.roles=broker", f"cluster.voters={cluster.voters}", *SETTINGS),
                f"listen.peer={reserved['peer']}",
            )
            joining.start()
            code = joining.stop()

        assert code == 0
        assert len(events_of(leader, "metadata.snapshot_damaged")) == 1
        assert events_of(joining, "metadata.snapshot_installed")
        assert events_of(joining, "quorum.snapshot_rejected") == []
