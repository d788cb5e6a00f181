"""ListOffsets: the ends of a log, or the first record at or after a time."""

from penstock.broker.list_offsets import ListedOffset
from penstock.core.model import ApiError, Offset
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.partition_lookup import partition_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import reader_of
from penstock.server.kafka.router import routes

READ_COMMITTED = 1
EPOCHS_SINCE = 4
# Older clients do not know the code; they retry for the other one, too.
NOT_AVAILABLE_SINCE = 5


@routes.handles(ListOffsetsRequest)
def list_offsets(request: ListOffsetsRequest, call: Request) -> None:
    read_committed = request.isolation_level == READ_COMMITTED
    call.reply(
        ListOffsetsResponse(
            throttle_time_ms=call.charge_time(),
            topics=tuple(
                ListOffsetsResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        _row(call, part, _find(call, topic.name, part, read_committed=read_committed))
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )
    )


def _find(
    call: Request, topic: str, part: ListOffsetsRequestPartition, *, read_committed: bool
) -> ListedOffset | ApiError:
    partition = partition_of(call, topic, part.partition_index, AclOperation.DESCRIBE)
    if isinstance(partition, ApiError):
        return partition
    found = call.backend.offset_lookup.find(
        partition, part.timestamp, read_committed=read_committed, leader_epoch=part.current_leader_epoch
    )
    if isinstance(found, ListedOffset) and found.offset >= 0:
        call.backend.groups.looked_up(reader_of(call), partition.name, Offset(found.offset))
    return found


def _row(
    call: Request, part: ListOffsetsRequestPartition, found: ListedOffset | ApiError
) -> ListOffsetsResponsePartition:
    if isinstance(found, ApiError):
        code = code_of(found)
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and call.version < NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsResponsePartition(partition_index=part.partition_index, error_code=code)
    if call.version == 0:
        offsets = (found.offset,) if found.offset >= 0 and part.max_num_offsets > 0 else ()
        return ListOffsetsResponsePartition(
            partition_index=part.partition_index, error_code=0, old_style_offsets=offsets
        )
    return ListOffsetsResponsePartition(
        partition_index=part.partition_index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if call.version >= EPOCHS_SINCE else -1,
    )
