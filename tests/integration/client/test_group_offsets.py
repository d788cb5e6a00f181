"""Offsets that are committed and read for a group from outside of it, also while brokers come and go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ClientError, Endpoint, GroupAdmin, GroupOffsetWriter, TopicAdmin
from penstock.client.group_offsets import committed_offsets
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

TOPIC, GROUP = "read", "readers"


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "node").start()
    yield node
    if node.is_running:
        node.kill()


def test_offsets_are_committed_again_after_a_commit_that_found_no_coordinator(own_node: NodeProcess) -> None:
    endpoint = Endpoint(own_node.kafka, {"reconnect.backoff.max.ms": "500"})
    TopicAdmin(endpoint).create(TOPIC, 2, 1, {})
    writer = GroupOffsetWriter(endpoint, GROUP, patience_seconds=1)

    def commits(partition: int, offset: int) -> bool:
        try:
            writer.commit({(TOPIC, partition): offset})
        except ClientError:
            return False
        return True

    until(lambda: commits(1, 1), "a commit")
    own_node.kill()
    with pytest.raises(ClientError, match=f"group {GROUP}: no coordinator in 1 s"):
        writer.commit({(TOPIC, 0): 2})
    own_node.start()
    until(lambda: commits(0, 3), "a commit after the restart")

    assert GroupAdmin(endpoint).committed(GROUP) == {(TOPIC, 0): 3, (TOPIC, 1): 1}
    writer.close()


def test_offsets_are_read_again_after_a_read_that_found_no_coordinator(own_node: NodeProcess) -> None:
    # Nobody listens at the first address.
    endpoint = Endpoint(f"127.0.0.1:1,{own_node.kafka}")
    TopicAdmin(endpoint).create(TOPIC, 2, 1, {})
    groups = GroupAdmin(endpoint)

    assert groups.committed(GROUP) == {}
    groups.reset(GROUP, {(TOPIC, 0): 2, (TOPIC, 1): 1})
    own_node.kill()
    with pytest.raises(ClientError, match=rf"group {GROUP}: no coordinator in 0.5 s \(no broker at "):
        committed_offsets(endpoint, GROUP, patience_seconds=0.5)
    own_node.start()

    assert groups.committed(GROUP) == {(TOPIC, 0): 2, (TOPIC, 1): 1}


def test_a_partition_that_is_not_there_is_named(own_node: NodeProcess) -> None:
    writer = GroupOffsetWriter(Endpoint(own_node.kafka), GROUP)

    with pytest.raises(ClientError, match=f"group {GROUP}"):
        writer.commit({("absent", 0): 1})
    writer.close()
