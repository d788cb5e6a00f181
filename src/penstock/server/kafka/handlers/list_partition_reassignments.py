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
from penstock.server.kafka.response_rows import CLUSTER, by_topic
from penstock.server.kafka.router import routes

NOT_ALLOWED = "the caller may not describe the cluster"


@routes.handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(request: ListPartitionReassignmentsRequest, call: Request) -> None:
    """Reply from this node's metadata: a reassignment that has just started may be missing."""
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER):
        call.reply(_response(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED))
        return
    image = call.backend.controller.image
    found = _every(image) if request.topics is None else _named(image, request)
    topics = tuple(
        ListPartitionReassignmentsResponseTopic(name=name, partitions=parts)
        for name, parts in by_topic((name, _row(partition)) for name, partition in found)
    )
    call.reply(_response(call, ErrorCode.NONE, None, topics))


def _every(image: MetadataImage) -> Iterator[tuple[str, Partition]]:
    for topic, partition in image.moving_partitions():
        yield topic.name, partition


def _named(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, Partition]]:
    for topic in request.topics or ():
        for index in sorted(frozenset(topic.partition_indexes)):
            partition = image.partition(topic.name, index)
            if partition is not None and partition.is_moving:
                yield topic.name, partition


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
