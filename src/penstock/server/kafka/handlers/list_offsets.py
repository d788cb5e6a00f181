"""ListOffsets: the ends of a log, or the first record at or after a time."""

from collections.abc import Iterator
from functools import partial

from penstock.broker.list_offsets import ListedOffset, PendingLookup
from penstock.core.model import ApiError, Offset, PartitionIndex, TopicName, TopicPartition
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


class OffsetRows:
    """What was found so far; the response follows when nothing is missing."""

    def __init__(self, call: Request, request: ListOffsetsRequest) -> None:
        self._call = call
        self._request = request
        self._found: list[list[ListedOffset | ApiError | None]] = [
            [None] * len(topic.partitions) for topic in request.topics
        ]
        # One for the handler, which has not looked everything up yet.
        self._missing = 1

    def add(self, row: int, column: int, found: ListedOffset | ApiError | PendingLookup) -> None:
        if isinstance(found, PendingLookup):
            self._missing += 1
            found.done = partial(self._came, row, column)
        else:
            self._found[row][column] = found

    def _came(self, row: int, column: int, found: ListedOffset | ApiError) -> None:
        self._found[row][column] = found
        if self.is_last() and self._call.is_open:
            self._call.run(self.respond())

    def is_last(self) -> bool:
        """One thing less is missing; returns whether it was the last."""
        self._missing -= 1
        return not self._missing

    def respond(self) -> Iterator[None]:
        call = self._call
        topics = []
        for topic, results in zip(self._request.topics, self._found, strict=True):
            rows = []
            for part, result in zip(topic.partitions, results, strict=True):
                assert result is not None
                if isinstance(result, ListedOffset) and result.offset >= 0:
                    name = TopicPartition(TopicName(topic.name), PartitionIndex(part.partition_index))
                    call.backend.groups.looked_up(reader_of(call), name, Offset(result.offset))
                rows.append(_row(call, part, result))
                yield
            topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=tuple(rows)))
        call.reply(ListOffsetsResponse(throttle_time_ms=call.charge_time(), topics=tuple(topics)))


@routes.handles(ListOffsetsRequest)
def list_offsets(request: ListOffsetsRequest, call: Request) -> Iterator[None]:
    read_committed = request.isolation_level == READ_COMMITTED
    rows = OffsetRows(call, request)
    for row, topic in enumerate(request.topics):
        for column, part in enumerate(topic.partitions):
            rows.add(row, column, _find(call, topic.name, part, read_committed=read_committed))
            yield
    if rows.is_last():
        yield from rows.respond()


def _find(
    call: Request, topic: str, part: ListOffsetsRequestPartition, *, read_committed: bool
) -> ListedOffset | ApiError | PendingLookup:
    partition = partition_of(call, topic, part.partition_index, AclOperation.DESCRIBE)
    if isinstance(partition, ApiError):
        return partition
    return call.backend.offset_lookup.find(
        partition, part.timestamp, read_committed=read_committed, leader_epoch=part.current_leader_epoch
    )


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
