"""QueuePeek: records of a queue, without leasing them. An API of Penstock, not of Kafka."""

from functools import partial

from penstock.broker.queues.queue_admin import PeekedMessage, PeekedMessages
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_peek import (
    QueuePeekRequest,
    QueuePeekResponse,
    QueuePeekResponseHeader,
    QueuePeekResponseRecord,
)
from penstock.core.queues import QueueId
from penstock.core.records import Record
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.queue_requests import QueueRefusal, group_refusal, queues_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes

BYTES_MAX = 8 << 20


@routes.handles(QueuePeekRequest)
def queue_peek(request: QueuePeekRequest, call: Request) -> None:
    queues = _queues(request, call)
    if isinstance(queues, QueueRefusal):
        _refuse(call, queues)
        return
    left = call.quota_left(QuotaType.BYTES_OUT)
    if left == 0:
        call.charge(QuotaType.BYTES_OUT, 0)
        _refuse(call, QueueRefusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the client is over its quota"))
        return
    call.backend.queue_admin.peek(
        queues[0],
        max(0, request.from_offset),
        request.count,
        min(request.bytes_max, BYTES_MAX if left is None else min(left, BYTES_MAX)),
        partial(_answer, call),
    )


def _queues(request: QueuePeekRequest, call: Request) -> tuple[QueueId, ...] | QueueRefusal:
    if request.count < 1:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, "count: at least one record must be asked for")
    refused = group_refusal(call, AclOperation.DESCRIBE, request.group_id)
    if refused is not None:
        return refused
    return queues_of(call, AclOperation.READ, request.group_id, [(request.topic, (request.partition,))])


def _refuse(call: Request, refused: QueueRefusal) -> None:
    call.reply(
        QueuePeekResponse(
            throttle_time_ms=call.charge_time(), error_code=refused.code, error_message=refused.message
        )
    )


def _answer(call: Request, reply: PeekedMessages | ApiError) -> None:
    if isinstance(reply, ApiError):
        _refuse(call, QueueRefusal.of(reply))
        return
    call.charge(QuotaType.BYTES_OUT, sum([_bytes_of(record) for record, _ in reply.messages]))
    call.reply(
        QueuePeekResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE,
            records=tuple([_row(each) for each in reply.messages]),
            next_offset=reply.next_offset,
        )
    )


def _bytes_of(record: Record) -> int:
    headers = sum([len(name) + len(value or b"") for name, value in record.headers])
    return len(record.key or b"") + len(record.value or b"") + headers


def _row(message: PeekedMessage) -> QueuePeekResponseRecord:
    record, peeked = message
    return QueuePeekResponseRecord(
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple([QueuePeekResponseHeader(key=key, value=value) for key, value in record.headers]),
        state=peeked.state,
        attempts=peeked.attempts,
        consumer=peeked.consumer,
        reason=peeked.reason,
    )
