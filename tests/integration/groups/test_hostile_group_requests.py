"""Requests that are well-formed and mean harm: each is refused, and the node goes on."""

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.core.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

LONG = "ä" * 30_000


def join(**fields: object) -> JoinGroupRequest:
    values = {
        "group_id": "victims",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol(name="range", metadata=b""),),
        **fields,
    }
    return JoinGroupRequest(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join(group_id=LONG), ErrorCode.INVALID_GROUP_ID),
        (join(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (join(group_instance_id=LONG), ErrorCode.INVALID_REQUEST),
        (join(protocol_type=LONG), ErrorCode.INVALID_REQUEST),
        (join(protocols=(JoinGroupRequestProtocol(name=LONG, metadata=b""),)), ErrorCode.INVALID_REQUEST),
        (join(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(session_timeout_ms=-1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(session_timeout_ms=2**31 - 1), ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_a_join_that_nobody_could_answer_is_refused(
    wire: Wire, topic: str, request_: JoinGroupRequest, code: ErrorCode
) -> None:
    del topic
    answer = wire.ask(request_, JoinGroupResponse, 9)

    assert answer.error_code == code


def test_a_client_with_an_endless_name_joins_under_a_shorter_one(node: NodeProcess, topic: str) -> None:
    del topic
    wire = Wire(node.address, "x" * 32_760)

    answer = wire.ask(join(group_id="long-names"), JoinGroupResponse, 3)

    assert answer.error_code == ErrorCode.NONE
    assert len(answer.member_id) < 2_000
    wire.close()


@pytest.mark.parametrize("retention_ms", [0, 2**63 - 1])
def test_a_commit_may_ask_for_any_retention(wire: Wire, topic: str, retention_ms: int) -> None:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    request = OffsetCommitRequest(
        group_id="keeper",
        retention_time_ms=retention_ms,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=(part,)),),
    )

    answer = wire.ask(request, OffsetCommitResponse, 4)

    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("metadata", "code"), [("x" * 4_096, ErrorCode.NONE), ("x" * 4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_the_note_of_a_commit_has_a_limit(wire: Wire, topic: str, metadata: str, code: ErrorCode) -> None:
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=-(2**63), committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id="notes", topics=(OffsetCommitRequestTopic(name=topic, partitions=(part,)),)
    )

    answer = wire.ask(request, OffsetCommitResponse, 8)

    assert answer.topics[0].partitions[0].error_code == code


def test_a_heartbeat_of_a_stranger_is_refused(wire: Wire, topic: str) -> None:
    del topic
    request = HeartbeatRequest(group_id=LONG, generation_id=-(2**31), member_id=LONG)

    assert wire.ask(request, HeartbeatResponse, 4).error_code == ErrorCode.INVALID_GROUP_ID
