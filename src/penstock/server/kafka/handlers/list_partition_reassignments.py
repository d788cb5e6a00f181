"""ListPartitionReassignments: which partitions are being moved."""

from collections.abc import Iterator

from penstock.core.metadata import MetadataImage, Partition
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected
from penstock.server.kafka.router import routes

NOT_ALLOWED = "the caller may not describe the cluster"


@routes.handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(request: ListPartitionReassignmentsRequest, call: Request) -> Iterator[None]:
    """Reply from this node's metadata: a reassignment that has just started may be missing."""
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER):
        call.reply(_response(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED))
        return
    image = call.backend.controller.image
    found = _every(image) if request.topics is None else _named(image, request)
    named: dict[str, list[ListPartitionReassignmentsResponsePartition]] = {}
    for name, partition in found:
        if partition is not None and partition.is_moving:
            named.setdefault(name, []).append(_row(partition))
        yield
    topics = yield from collected(
        ListPartitionReassignmentsResponseTopic(name=name, partitions=tuple(rows))
        for name, rows in named.items()
    )
    call.reply(_response(call, ErrorCode.NONE, None, topics))


def _every(image: MetadataImage) -> Iterator[tuple[str, Partition | None]]:
    for topic, partition in image.moving_partitions():
        yield topic.name, partition


def _named(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, Partition | None]]:
    for topic in request.topics or ():
        for index in sorted(frozenset(topic.partition_indexes)):
            yield topic.name, image.partition(topic.name, index)


def _row(partition: Partition) -> ListPartitionReassignmentsResponsePartition:
    return ListPartitionReassignmentsResponsePartition(
        partition_index=partition.index,
        replicas=partition.replicas,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
    )


def _response(
    call: Request,
    code: ErrorCode,
    message: str | None,
    topics: tuple[ListPartitionReassignmentsResponseTopic, ...] = (),
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=call.charge_time(), error_code=code, error_message=message, topics=topics
    )
