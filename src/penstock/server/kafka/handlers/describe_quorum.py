"""DescribeQuorum: voters and learners of the metadata quorum, and how far each has got."""

from collections.abc import Iterator

from penstock.broker.cluster import QuorumMemberStatus, QuorumStatus
from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponseListener,
    DescribeQuorumResponseNode,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplica,
    DescribeQuorumResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, by_topic_in_steps, collected, error_fields
from penstock.server.kafka.router import routes

NOT_ALLOWED = "the caller may not describe the cluster"
NOT_HERE = "only partition 0 of __cluster_metadata can be described"
LISTENER = "PEER"
# Before this version members are given by node id alone.
DIRECTORIES_SINCE = 2


@routes.handles(DescribeQuorumRequest)
def describe_quorum(request: DescribeQuorumRequest, call: Request) -> None:
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        call.reply(DescribeQuorumResponse(error_code=code, error_message=NOT_ALLOWED, topics=()))
        return
    asked = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    call.backend.quorum.describe(lambda status: call.run(_answer(call, asked, status)))


def _answer(call: Request, asked: list[tuple[str, int]], status: QuorumStatus | ApiError) -> Iterator[None]:
    version = call.version
    found = yield from by_topic_in_steps((name, _row(name, index, status, version)) for name, index in asked)
    topics = yield from collected(
        DescribeQuorumResponseTopic(topic_name=name, partitions=parts) for name, parts in found
    )
    call.reply(
        DescribeQuorumResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            topics=topics,
            nodes=_nodes(status) if version >= DIRECTORIES_SINCE else (),
        )
    )


def _row(
    name: str, index: int, status: QuorumStatus | ApiError, version: int
) -> DescribeQuorumResponsePartition:
    if (name, index) != (METADATA_TOPIC, 0):
        return _error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE)
    if isinstance(status, ApiError):
        return _error(index, *error_fields(status))
    return DescribeQuorumResponsePartition(
        partition_index=index,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=status.leader,
        leader_epoch=status.epoch,
        high_watermark=status.high_watermark,
        current_voters=tuple(_replica(member, version) for member in status.voters),
        observers=tuple(_replica(member, version) for member in status.learners),
    )


def _error(index: int, code: ErrorCode, message: str | None) -> DescribeQuorumResponsePartition:
    return DescribeQuorumResponsePartition(
        partition_index=index,
        error_code=code,
        error_message=message,
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
        current_voters=(),
        observers=(),
    )


def _replica(member: QuorumMemberStatus, version: int) -> DescribeQuorumResponseReplica:
    return DescribeQuorumResponseReplica(
        replica_id=member.node_id,
        replica_directory_id=member.directory_id if version >= DIRECTORIES_SINCE else ZERO_UUID,
        log_end_offset=member.log_end,
        last_fetch_timestamp=-1 if member.heard_at is None else member.heard_at,
        last_caught_up_timestamp=-1 if member.caught_up_at is None else member.caught_up_at,
    )


def _nodes(status: QuorumStatus | ApiError) -> tuple[DescribeQuorumResponseNode, ...]:
    if isinstance(status, ApiError):
        return ()
    return tuple(map(_node, (*status.voters, *status.learners)))


def _node(member: QuorumMemberStatus) -> DescribeQuorumResponseNode:
    address = member.address
    listeners = (
        ()
        if address is None
        else (DescribeQuorumResponseListener(name=LISTENER, host=address.host, port=address.port),)
    )
    return DescribeQuorumResponseNode(node_id=member.node_id, listeners=listeners)
