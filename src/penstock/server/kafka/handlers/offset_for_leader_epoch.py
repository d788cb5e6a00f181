"""OffsetForLeaderEpoch: where an epoch ended, so that a client can tell what was truncated."""

from collections.abc import Iterator

from penstock.core.model import ApiError
from penstock.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.partition_lookup import partition_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected
from penstock.server.kafka.router import routes


@routes.handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, call: Request) -> Iterator[None]:
    topics: list[OffsetForLeaderEpochResponseTopic] = []
    for topic in request.topics:
        rows = yield from collected(_row(call, topic.topic, part) for part in topic.partitions)
        topics.append(OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=rows))
        yield
    call.reply(OffsetForLeaderEpochResponse(throttle_time_ms=call.charge_time(), topics=tuple(topics)))


def _row(
    call: Request, topic: str, part: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartition:
    partition = partition_of(call, topic, part.partition, AclOperation.DESCRIBE)
    if not isinstance(partition, ApiError):
        found = call.backend.offset_lookup.end_of_epoch(
            partition, part.leader_epoch, part.current_leader_epoch
        )
        if not isinstance(found, ApiError):
            return OffsetForLeaderEpochResponsePartition(
                error_code=0, partition=part.partition, leader_epoch=found[0], end_offset=found[1]
            )
        partition = found
    return OffsetForLeaderEpochResponsePartition(error_code=code_of(partition), partition=part.partition)
