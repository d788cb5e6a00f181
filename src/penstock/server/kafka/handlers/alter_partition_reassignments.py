"""AlterPartitionReassignments: starts and cancels reassignments of partitions."""

from collections.abc import Iterator, Sequence

from penstock.core.metadata import AlteredPartition, ReassignPartition
from penstock.core.model import ApiError, NodeId, PartitionIndex
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    CLUSTER,
    by_topic_in_steps,
    collected,
    error_fields,
    shared_code,
)
from penstock.server.kafka.router import routes

NOT_ALLOWED = "the caller may not alter the cluster"


@routes.handles(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, call: Request
) -> Iterator[None]:
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        call.reply(_response(request, call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED))
        return
    wanted = yield from collected(
        ReassignPartition(
            topic.name,
            PartitionIndex(each.partition_index),
            None if each.replicas is None else tuple(map(NodeId, each.replicas)),
            resize=request.allow_replication_factor_change,
        )
        for topic in request.topics
        for each in topic.partitions
    )

    def done(outcomes: list[AlteredPartition | ApiError]) -> None:
        call.run(_answer(request, call, wanted, outcomes))

    call.backend.topics.reassign(wanted, done, timeout_ms=request.timeout_ms, account=call.connection.account)


def _answer(
    request: AlterPartitionReassignmentsRequest,
    call: Request,
    wanted: Sequence[ReassignPartition],
    outcomes: list[AlteredPartition | ApiError],
) -> Iterator[None]:
    code, message = shared_code(outcomes)
    found = yield from by_topic_in_steps(
        (move.topic, _row(move.index, outcome)) for move, outcome in zip(wanted, outcomes, strict=True)
    )
    topics = yield from collected(
        AlterPartitionReassignmentsResponseTopic(name=name, partitions=parts) for name, parts in found
    )
    call.reply(_response(request, call, code, message, topics))


def _row(index: int, outcome: AlteredPartition | ApiError) -> AlterPartitionReassignmentsResponsePartition:
    code, message = error_fields(outcome)
    return AlterPartitionReassignmentsResponsePartition(
        partition_index=index, error_code=code, error_message=message
    )


def _response(
    request: AlterPartitionReassignmentsRequest,
    call: Request,
    code: ErrorCode,
    message: str | None,
    topics: tuple[AlterPartitionReassignmentsResponseTopic, ...] = (),
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=call.charge_time(),
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=topics,
    )
