"""DeleteRecords: dropping the front of partitions."""

from penstock.core.model import Refused
from penstock.core.wire.kafka.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.lookup import partition_of
from penstock.gateways.kafka.refusals import code_of
from penstock.gateways.kafka.routes import routes
from penstock.security import Operation

NO_WATERMARK = -1


@routes.handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, call: Call) -> None:
    call.reply(
        DeleteRecordsResponse(
            throttle_time_ms=0,
            topics=tuple(
                DeleteRecordsResponseTopic(
                    name=topic.name,
                    partitions=tuple(_row(call, topic.name, part) for part in topic.partitions),
                )
                for topic in request.topics
            ),
        )
    )


def _row(call: Call, topic: str, part: DeleteRecordsRequestPartition) -> DeleteRecordsResponsePartition:
    partition = partition_of(call, topic, part.partition_index, Operation.DELETE)
    if not isinstance(partition, Refused):
        start = call.backend.lookups.delete_before(partition, part.offset)
        if not isinstance(start, Refused):
            return DeleteRecordsResponsePartition(
                partition_index=part.partition_index, low_watermark=start, error_code=0
            )
        partition = start
    return DeleteRecordsResponsePartition(
        partition_index=part.partition_index, low_watermark=NO_WATERMARK, error_code=code_of(partition)
    )
