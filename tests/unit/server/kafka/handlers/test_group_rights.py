"""Who may do what to groups, and which errors they get otherwise."""

from typing import Any

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.codec import Message
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from penstock.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.runtime import Address
from penstock.security import AclOperation

GROUP = "readers"
TOPICS = ("open", "secret")

JOIN = JoinGroupRequest(
    group_id=GROUP, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=()
)
SYNC = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m", assignments=())
HEARTBEAT = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
LEAVE = LeaveGroupRequest(group_id=GROUP, member_id="m")
COMMIT = OffsetCommitRequest(
    group_id=GROUP,
    topics=tuple(
        OffsetCommitRequestTopic(
            name=name,
            partitions=(
                OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None),
            ),
        )
        for name in TOPICS
    ),
)
FETCH = OffsetFetchRequest(
    group_id=GROUP,
    topics=tuple(OffsetFetchRequestTopic(name=name, partition_indexes=(0,)) for name in TOPICS),
)
FETCH_BATCH = OffsetFetchRequest(
    groups=(
        OffsetFetchRequestGroup(
            group_id=GROUP,
            topics=tuple(OffsetFetchRequestGroupTopic(name=name, partition_indexes=(0,)) for name in TOPICS),
        ),
    )
)
DELETE_OFFSETS = OffsetDeleteRequest(
    group_id=GROUP,
    topics=tuple(
        OffsetDeleteRequestTopic(name=name, partitions=(OffsetDeleteRequestPartition(partition_index=0),))
        for name in TOPICS
    ),
)


def codes(answer: Any) -> list[int]:
    """Every error code in a response, from the outside in."""
    found = [answer.error_code] if hasattr(answer, "error_code") else []
    for field in ("coordinators", "groups", "results", "topics", "partitions"):
        for inner in getattr(answer, field, ()):
            found += codes(inner)
    return found


@pytest.mark.parametrize(
    ("request_", "answer", "version", "operation"),
    [
        (FindCoordinatorRequest(key=GROUP), FindCoordinatorResponse, 3, AclOperation.DESCRIBE),
        (
            FindCoordinatorRequest(coordinator_keys=(GROUP,)),
            FindCoordinatorResponse,
            4,
            AclOperation.DESCRIBE,
        ),
        (JOIN, JoinGroupResponse, 4, AclOperation.READ),
        (SYNC, SyncGroupResponse, 3, AclOperation.READ),
        (HEARTBEAT, HeartbeatResponse, 3, AclOperation.READ),
        (LEAVE, LeaveGroupResponse, 2, AclOperation.READ),
        (COMMIT, OffsetCommitResponse, 8, AclOperation.READ),
        (FETCH, OffsetFetchResponse, 1, AclOperation.DESCRIBE),
        (FETCH, OffsetFetchResponse, 7, AclOperation.DESCRIBE),
        (FETCH_BATCH, OffsetFetchResponse, 8, AclOperation.DESCRIBE),
        (DELETE_OFFSETS, OffsetDeleteResponse, 0, AclOperation.DELETE),
        (DescribeGroupsRequest(groups=(GROUP,)), DescribeGroupsResponse, 5, AclOperation.DESCRIBE),
        (DeleteGroupsRequest(groups_names=(GROUP,)), DeleteGroupsResponse, 2, AclOperation.DELETE),
    ],
)
def test_a_group_that_is_not_theirs_is_refused(
    stage: Any, request_: Message, answer: type[Message], version: int, operation: AclOperation
) -> None:
    stage.authorizer.denied.add((operation, GROUP))

    told = codes(stage.ask(request_, answer, version))

    assert ErrorCode.GROUP_AUTHORIZATION_FAILED in told
    assert {*told} <= {ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED}


@pytest.fixture
def topics(stage: Any) -> Any:
    """A node with the two topics, and a coordinator."""
    wanted = tuple(
        CreateTopicsRequestTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in TOPICS
    )
    stage.ask(CreateTopicsRequest(topics=wanted), CreateTopicsResponse, 5)
    stage.ask(FindCoordinatorRequest(key=GROUP), FindCoordinatorResponse, 3)
    return stage


def test_positions_in_topics_that_are_not_theirs_are_neither_taken_nor_told(topics: Any) -> None:
    everything = topics.ask(COMMIT, OffsetCommitResponse, 8)
    topics.authorizer.denied |= {(AclOperation.READ, "secret"), (AclOperation.DESCRIBE, "secret")}

    commit = topics.ask(COMMIT, OffsetCommitResponse, 8)
    fetch = topics.ask(FETCH, OffsetFetchResponse, 7)
    everywhere = topics.ask(OffsetFetchRequest(group_id=GROUP, topics=None), OffsetFetchResponse, 7)
    delete = topics.ask(DELETE_OFFSETS, OffsetDeleteResponse, 0)

    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes(everything) == [0, 0]
    assert codes(commit) == [0, refused]
    assert [topic.partitions[0].committed_offset for topic in fetch.topics] == [5, -1]
    assert codes(fetch) == [0, 0, refused]
    assert [topic.name for topic in everywhere.topics] == ["open"]
    assert codes(delete) == [0, 0, refused]


def test_who_may_not_see_the_cluster_sees_the_groups_that_they_may(topics: Any) -> None:
    topics.ask(COMMIT, OffsetCommitResponse, 8)

    everything = topics.ask(ListGroupsRequest(), ListGroupsResponse, 4)
    topics.authorizer.denied.add((AclOperation.DESCRIBE, "kafka-cluster"))
    own = topics.ask(ListGroupsRequest(), ListGroupsResponse, 4)
    topics.authorizer.denied.add((AclOperation.DESCRIBE, GROUP))
    nothing = topics.ask(ListGroupsRequest(), ListGroupsResponse, 4)

    assert [[group.group_id for group in answer.groups] for answer in (everything, own, nothing)] == [
        [GROUP],
        [GROUP],
        [],
    ]


def test_clients_get_the_throttle_time(topics: Any) -> None:
    topics.authorizer.throttle_ms = 40

    assert topics.ask(HEARTBEAT, HeartbeatResponse, 3).throttle_time_ms == 40
    assert topics.ask(COMMIT, OffsetCommitResponse, 8).throttle_time_ms == 40


def test_a_coordinator_is_named_as_its_listener_says(stage_with: Any) -> None:
    stage = stage_with(advertised=Address("broker.example", 443))

    found = stage.ask(FindCoordinatorRequest(key=GROUP), FindCoordinatorResponse, 3)

    assert (found.host, found.port) == ("broker.example", 443)
