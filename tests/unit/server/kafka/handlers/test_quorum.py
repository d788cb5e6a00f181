"""DescribeQuorum, AddRaftVoter and RemoveRaftVoter, on a quorum of one."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.core.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from penstock.core.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

METADATA = "__cluster_metadata"
OURS = UUID(int=4)


def describe(stage: "Stage", topics: dict[str, tuple[int, ...]], version: int = 2) -> DescribeQuorumResponse:
    request = DescribeQuorumRequest(
        topics=tuple(
            DescribeQuorumRequestTopic(
                topic_name=name,
                partitions=tuple(DescribeQuorumRequestPartition(partition_index=index) for index in indexes),
            )
            for name, indexes in topics.items()
        )
    )
    return stage.ask(request, DescribeQuorumResponse, version)


def add(stage: "Stage", node_id: int, directory: UUID, cluster: str | None = None) -> ErrorCode:
    request = AddRaftVoterRequest(
        cluster_id=cluster, timeout_ms=1_000, voter_id=node_id, voter_directory_id=directory, listeners=()
    )
    answer = stage.ask(request, AddRaftVoterResponse, 1)
    assert (answer.error_message is None) == (answer.error_code == 0)
    return ErrorCode(answer.error_code)


def remove(stage: "Stage", node_id: int, directory: UUID, cluster: str | None = None) -> ErrorCode:
    request = RemoveRaftVoterRequest(cluster_id=cluster, voter_id=node_id, voter_directory_id=directory)
    answer = stage.ask(request, RemoveRaftVoterResponse, 0)
    assert (answer.error_message is None) == (answer.error_code == 0)
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("version", range(3))
def test_every_version_shows_one_voter_that_leads(stage: "Stage", version: int) -> None:
    answer = describe(stage, {METADATA: (0,)}, version)

    assert answer.error_code == 0
    (topic,) = answer.topics
    (row,) = topic.partitions
    assert (topic.topic_name, row.partition_index, row.error_code, row.leader_id) == (METADATA, 0, 0, 1)
    assert row.leader_epoch > 0
    assert row.high_watermark > 0
    assert [voter.replica_id for voter in row.current_voters] == [1]
    assert row.observers == ()
    if version >= 1:
        assert row.current_voters[0].last_caught_up_timestamp > 0
    if version >= 2:
        assert row.current_voters[0].replica_directory_id == OURS
        assert [node.node_id for node in answer.nodes] == [1]


def test_other_topics_have_no_quorum(stage: "Stage") -> None:
    answer = describe(stage, {"orders": (0,), METADATA: (1,)})

    assert [
        (topic.topic_name, [part.error_code for part in topic.partitions]) for topic in answer.topics
    ] == [
        ("orders", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (METADATA, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ]


def test_the_last_voter_stays_and_votes_once(stage: "Stage") -> None:
    assert remove(stage, 1, OURS) == ErrorCode.INVALID_REQUEST
    assert remove(stage, 1, UUID(int=9)) == ErrorCode.VOTER_NOT_FOUND
    assert remove(stage, 2, OURS) == ErrorCode.VOTER_NOT_FOUND
    assert add(stage, 1, OURS) == ErrorCode.DUPLICATE_VOTER


def test_votes_of_another_cluster_are_none_of_ours(stage: "Stage") -> None:
    assert add(stage, 2, UUID(int=9), "another") == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert remove(stage, 1, OURS, "another") == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_who_may_not_alter_or_describe_the_cluster_does_neither(stage: "Stage") -> None:
    stage.authorizer.denied = {
        (AclOperation.ALTER, "kafka-cluster"),
        (AclOperation.DESCRIBE, "kafka-cluster"),
    }

    described = describe(stage, {METADATA: (0,)})

    assert (described.error_code, described.topics) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    assert add(stage, 2, UUID(int=9)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert remove(stage, 1, OURS) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
