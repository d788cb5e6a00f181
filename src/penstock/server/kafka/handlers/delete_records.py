"""DeleteRecords: deletes records from the front of partitions."""

from collections.abc import Iterator

from penstock.broker.partitions import LeaderPartition
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
from penstock.server.kafka.response_rows import collected
from penstock.server.kafka.router import routes

NO_WATERMARK = -1
# Coordinators would lose their state.
INTERNAL = ApiError(ErrorKind.INVALID_TOPIC_NAME, "records of internal topics are not deleted by clients")
DELETABLE = CleanupPolicy.DELETE | CleanupPolicy.CONSUMED
COMPACTED = ApiError(ErrorKind.NOT_DELETABLE, "the topic's cleanup.policy is not delete")


@routes.handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, call: Request) -> Iterator[None]:
    """Reply when the replicas in sync have deleted all of it, or at the request's deadline."""
    outcomes: list[Offset | ApiError] = []
    # The rows that are deleted, and the partition of each.
    rows: list[int] = []
    wanted: list[tuple[LeaderPartition, int]] = []
    for topic in request.topics:
        for part in topic.partitions:
            partition = _partition(call, topic.name, part.partition_index)
            if not isinstance(partition, ApiError):
                rows.append(len(outcomes))
                wanted.append((partition, part.offset))
            outcomes.append(partition if isinstance(partition, ApiError) else Offset(0))
            yield
        yield

    def done(found: list[Offset | ApiError]) -> None:
        for row, outcome in zip(rows, found, strict=True):
            outcomes[row] = outcome
        call.run(_answer(request, call, outcomes))

    if not wanted:
        done([])
    else:
        cancel = call.backend.record_deletion.delete(wanted, request.timeout_ms, done)
        call.on_abandoned(cancel, keeps_room=True)


def _partition(call: Request, topic: str, index: int) -> LeaderPartition | ApiError:
    partition = partition_of(call, topic, index, AclOperation.DELETE)
    if isinstance(partition, ApiError):
        return partition
    if is_internal(topic):
        return INTERNAL
    return partition if call.backend.partitions.options(topic).cleanup & DELETABLE else COMPACTED


def _answer(
    request: DeleteRecordsRequest, call: Request, outcomes: list[Offset | ApiError]
) -> Iterator[None]:
    left = iter(outcomes)
    topics: list[DeleteRecordsResponseTopic] = []
    for topic in request.topics:
        rows = yield from collected(_row(part, next(left)) for part in topic.partitions)
        topics.append(DeleteRecordsResponseTopic(name=topic.name, partitions=rows))
        yield
    call.reply(DeleteRecordsResponse(throttle_time_ms=call.charge_time(), topics=tuple(topics)))


def _row(part: DeleteRecordsRequestPartition, outcome: Offset | ApiError) -> DeleteRecordsResponsePartition:
    if isinstance(outcome, ApiError):
        return DeleteRecordsResponsePartition(
            partition_index=part.partition_index, low_watermark=NO_WATERMARK, error_code=code_of(outcome)
        )
    return DeleteRecordsResponsePartition(
        partition_index=part.partition_index, low_watermark=outcome, error_code=0
    )
