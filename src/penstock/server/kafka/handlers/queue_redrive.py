"""QueueRedrive: dead letters back to where they came from. An API of Penstock, not of Kafka."""

from collections.abc import Callable

from penstock.broker.queues.queue_admin import PeekedMessages
from penstock.broker.queues.redrive import OFFSETS_MAX, TOO_MANY, RedrivenRecord, RedriveRequest
from penstock.core.model import ApiError, Offset, PartitionIndex, TopicName, TopicPartition
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_peek import AVAILABLE
from penstock.core.protocol.messages.queue_redrive import (
    QueueRedriveRequest,
    QueueRedriveRequestPartition,
    QueueRedriveResponse,
    QueueRedriveResponsePartition,
    QueueRedriveResponseRecord,
)
from penstock.core.queues import REDRIVE_GROUP, QueueId
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.queue_requests import QueueRefusal, queues_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import topic_resource
from penstock.server.kafka.router import routes

RECORDS_MAX = 200
PEEK_BYTES_MAX = 4 << 20
Rows = tuple[RedrivenRecord, ...]


@routes.handles(QueueRedriveRequest)
def queue_redrive(request: QueueRedriveRequest, call: Request) -> None:
    """One partition after the other, until as many dead letters as asked for were moved."""
    asked = _asked(request, call)
    if isinstance(asked, QueueRefusal):
        call.reply(
            QueueRedriveResponse(
                throttle_time_ms=call.charge_time(), error_code=asked.code, error_message=asked.message
            )
        )
    else:
        _RedriveCall(request, call, asked).next()


def _asked(
    request: QueueRedriveRequest, call: Request
) -> list[tuple[QueueId, QueueRedriveRequestPartition]] | QueueRefusal:
    if request.records_max < 1:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, "records_max: at least one record must be asked for")
    chosen = {each.partition: each for each in request.partitions}
    if len(chosen) < len(request.partitions):
        return QueueRefusal(ErrorCode.INVALID_REQUEST, "partitions: one of them is named twice")
    if any(each.from_offset < 0 for each in request.partitions):
        return QueueRefusal(ErrorCode.INVALID_REQUEST, "from_offset: an offset is 0 or more")
    # What was redriven is finished in the topic: that is a change.
    topics = [(request.topic, tuple(chosen))]
    refused = queues_of(call, AclOperation.WRITE, REDRIVE_GROUP, topics)
    queues = queues_of(call, AclOperation.READ, REDRIVE_GROUP, topics)
    if isinstance(refused, QueueRefusal):
        return refused
    if isinstance(queues, QueueRefusal):
        return queues
    target = request.to_topic
    # Before anything looks whether there is such a topic.
    if target is not None and not call.authorize(AclOperation.WRITE, topic_resource(target)):
        return QueueRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {target}: not authorized")
    return [
        (queue, chosen.get(queue.partition) or QueueRedriveRequestPartition(partition=queue.partition))
        for queue in queues
    ]


class _RedriveCall:
    """A request on its way through the partitions, each in a turn of the loop of its own."""

    def __init__(
        self,
        request: QueueRedriveRequest,
        call: Request,
        asked: list[tuple[QueueId, QueueRedriveRequestPartition]],
    ) -> None:
        self._request = request
        self._call = call
        self._asked = asked[::-1]
        self._left = min(request.records_max, RECORDS_MAX)
        self._rows: list[QueueRedriveResponsePartition] = []

    def next(self) -> None:
        if not self._asked or self._left <= 0:
            self._call.reply(
                QueueRedriveResponse(
                    throttle_time_ms=self._call.charge_time(),
                    error_code=ErrorCode.NONE,
                    partitions=tuple(self._rows),
                )
            )
            return
        queue, chosen = self._asked.pop()
        call = self._call
        wanted = RedriveRequest(
            partition=TopicPartition(TopicName(self._request.topic), PartitionIndex(chosen.partition)),
            offsets=tuple(map(Offset, chosen.offsets)),
            to_topic=self._request.to_topic,
            records_max=self._left,
            may_write=lambda topic: call.authorize(AclOperation.WRITE, topic_resource(topic)),
        )

        def done(reply: Rows | ApiError, next_offset: int = -1) -> None:
            self._rows.append(_row(chosen.partition, reply, next_offset))
            if not isinstance(reply, ApiError):
                self._left -= len(reply)
            call.connection.soon(self.next)

        if self._request.is_dry_run:
            self._try(queue, wanted, chosen.from_offset, done)
        else:
            call.backend.redriver.redrive(wanted, done)

    def _try(
        self, queue: QueueId, wanted: RedriveRequest, from_offset: int, done: Callable[..., None]
    ) -> None:
        """What would be moved: a chosen dead letter after the other, or the oldest ones."""
        backend = self._call.backend
        found: list[RedrivenRecord] = []
        if len(wanted.offsets) > OFFSETS_MAX:
            done(TOO_MANY)
            return
        offsets = list(wanted.offsets)[::-1]

        def peeked(reply: PeekedMessages | ApiError) -> None:
            if isinstance(reply, ApiError):
                done(reply)
                return
            found.extend(
                RedrivenRecord(Offset(record.offset), backend.redriver.target_of(record, wanted))
                for record, state in reply.messages
                if state.state == AVAILABLE and (not wanted.offsets or record.offset == wanted_offset[0])
            )
            if offsets and len(found) < wanted.records_max:
                # A peek may be answered at once: not from inside of the one before.
                self._call.connection.soon(peek_next)
            else:
                done(tuple(found), -1 if wanted.offsets else reply.next_offset)

        wanted_offset = [Offset(from_offset)]

        def peek_next() -> None:
            if wanted.offsets:
                wanted_offset[0] = offsets.pop()
            count = 1 if wanted.offsets else wanted.records_max
            backend.queue_admin.peek(queue, wanted_offset[0], count, PEEK_BYTES_MAX, peeked)

        peek_next()


def _row(partition: int, reply: Rows | ApiError, next_offset: int) -> QueueRedriveResponsePartition:
    if isinstance(reply, ApiError):
        return QueueRedriveResponsePartition(
            partition=partition, error_code=code_of(reply), error_message=message_of(reply)
        )
    return QueueRedriveResponsePartition(
        partition=partition,
        error_code=ErrorCode.NONE,
        records=tuple(map(_record, reply)),
        next_offset=next_offset,
    )


def _record(redriven: RedrivenRecord) -> QueueRedriveResponseRecord:
    target = redriven.target
    if isinstance(target, ApiError):
        return QueueRedriveResponseRecord(
            offset=redriven.offset, error_code=code_of(target), error_message=message_of(target)
        )
    return QueueRedriveResponseRecord(
        offset=redriven.offset, to_topic=target.topic, to_partition=target.partition
    )
