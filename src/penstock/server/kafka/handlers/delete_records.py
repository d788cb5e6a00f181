"""DeleteRecords: deletes records from the front of partitions."""

from penstock.core.metadata import is_internal
from penstock.core.metadata.configs import CleanupPolicy
from penstock.core.model import ApiError, ErrorKind
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
COMPACTED = ApiError(ErrorKind.NOT_DELETABLE, "the topic's cleanup.policy is not delete")


@routes.handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, call: Request) -> None:
    call.reply(
        DeleteRecordsResponse(
            throttle_time_ms=call.charge_time(),
            topics=tuple(
                DeleteRecordsResponseTopic(
                    name=topic.name,
                    partitions=tuple(_row(call, topic.name, part) for part in topic.partitions),
                )
                for topic in request.topics
            ),
        )
    )


def _row(call: Request, topic: str, part: DeleteRecordsRequestPartition) -> DeleteRecordsResponsePartition:
    start = _delete(call, topic, part)
    if isinstance(start, ApiError):
        return DeleteRecordsResponsePartition(
            partition_index=part.partition_index, low_watermark=NO_WATERMARK, error_code=code_of(start)
        )
    return DeleteRecordsResponsePartition(
        partition_index=part.partition_index, low_watermark=start, error_code=0
    )


def _delete(call: Request, topic: str, part: DeleteRecordsRequestPartition) -> int | ApiError:
    backend = call.backend
    partition = partition_of(call, topic, part.partition_index, AclOperation.DELETE)
    if isinstance(partition, ApiError):
        return partition
    if is_internal(topic):
        return INTERNAL
    if CleanupPolicy.DELETE not in backend.partitions.options(topic).cleanup:
        return COMPACTED
    return backend.offset_lookup.delete_before(partition, part.offset)
