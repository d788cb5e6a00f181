"""DeleteRecords: deletes records from the front of partitions."""

from collections.abc import Callable
from functools import partial

from penstock.core.metadata import is_internal
from penstock.core.metadata.configs import CleanupPolicy
from penstock.core.model import ApiError, ErrorKind, Offset
from penstock.core.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.partition_lookup import partition_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes

NO_WATERMARK = -1
# Coordinators would lose their state.
INTERNAL = ApiError(ErrorKind.INVALID_TOPIC_NAME, "records of internal topics are not deleted by clients")
DELETABLE = CleanupPolicy.DELETE | CleanupPolicy.CONSUMED
COMPACTED = ApiError(ErrorKind.NOT_DELETABLE, "the topic's cleanup.policy is not delete")


@routes.handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, call: Request) -> None:
    """Reply when the replicas in sync have deleted all of it, or at the request's deadline."""
    asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
    rows: list[DeleteRecordsResponsePartition | None] = [None] * len(asked)
    missing = len(asked)

    def done(number: int, outcome: Offset | ApiError) -> None:
        nonlocal missing
        rows[number] = _row(asked[number][1], outcome)
        missing -= 1
        if not missing:
            call.reply(_response(request, call, [row for row in rows if row is not None]))

    if not asked:
        call.reply(_response(request, call, []))
    for number, (topic, part) in enumerate(asked):
        _delete(call, topic, part, request.timeout_ms, partial(done, number))


def _response(
    request: DeleteRecordsRequest, call: Request, rows: list[DeleteRecordsResponsePartition]
) -> DeleteRecordsResponse:
    left = iter(rows)
    return DeleteRecordsResponse(
        throttle_time_ms=call.charge_time(),
        topics=tuple(
            DeleteRecordsResponseTopic(
                name=topic.name, partitions=tuple(next(left) for _ in topic.partitions)
            )
            for topic in request.topics
        ),
    )


def _row(part: DeleteRecordsRequestPartition, outcome: Offset | ApiError) -> DeleteRecordsResponsePartition:
    if isinstance(outcome, ApiError):
        return DeleteRecordsResponsePartition(
            partition_index=part.partition_index, low_watermark=NO_WATERMARK, error_code=code_of(outcome)
        )
    return DeleteRecordsResponsePartition(
        partition_index=part.partition_index, low_watermark=outcome, error_code=0
    )


def _delete(
    call: Request,
    topic: str,
    part: DeleteRecordsRequestPartition,
    timeout_ms: int,
    done: Callable[[Offset | ApiError], None],
) -> None:
    backend = call.backend
    partition = partition_of(call, topic, part.partition_index, AclOperation.DELETE)
    if isinstance(partition, ApiError):
        done(partition)
    elif is_internal(topic):
        done(INTERNAL)
    elif not backend.partitions.options(topic).cleanup & DELETABLE:
        done(COMPACTED)
    else:
        start = backend.offset_lookup.delete_before(partition, part.offset)
        if isinstance(start, ApiError):
            done(start)
        else:
            partition.when_deleted(start, lambda error: done(start if error is None else error), timeout_ms)
