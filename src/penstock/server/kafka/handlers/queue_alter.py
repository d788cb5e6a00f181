"""QueueAlter: pauses, resumes, resets and forgets queues. An API of Penstock, not of Kafka."""

from functools import partial

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_alter import (
    FORGET,
    PAUSE,
    RESET,
    RESUME,
    TO_EARLIEST,
    QueueAlterRequest,
    QueueAlterResponse,
    QueueAlterResponsePartition,
)
from penstock.core.queues import ForgetQueue, OnReply, PauseQueue, QueueId, QueueReply
from penstock.security import AclOperation
from penstock.server.kafka.queue_requests import QueueRefusal, group_refusal, queues_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import ResponseRows, error_fields
from penstock.server.kafka.router import routes

# Forgetting and resetting lose what a group has done, as the deletion of its offsets does.
RIGHTS = {
    PAUSE: AclOperation.READ,
    RESUME: AclOperation.READ,
    RESET: AclOperation.READ,
    FORGET: AclOperation.DELETE,
}


@routes.handles(QueueAlterRequest)
def queue_alter(request: QueueAlterRequest, call: Request) -> None:
    queues = _queues(request, call)
    if isinstance(queues, QueueRefusal):
        call.reply(
            QueueAlterResponse(
                throttle_time_ms=call.charge_time(), error_code=queues.code, error_message=queues.message
            )
        )
        return

    def send(rows: tuple[QueueAlterResponsePartition, ...]) -> None:
        call.reply(
            QueueAlterResponse(
                throttle_time_ms=call.charge_time(), error_code=ErrorCode.NONE, partitions=rows
            )
        )

    rows = ResponseRows[QueueAlterResponsePartition](len(queues), send)
    for number, queue in enumerate(queues):
        _alter(request, call, queue, partial(_put, rows, number, queue))
    rows.end()


def _queues(request: QueueAlterRequest, call: Request) -> tuple[QueueId, ...] | QueueRefusal:
    if request.action not in RIGHTS:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, f"action: there is no {request.action}")
    if request.action == RESET and request.offset < TO_EARLIEST:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, f"offset: a queue cannot begin at {request.offset}")
    refused = group_refusal(call, RIGHTS[request.action], request.group_id)
    if refused is not None:
        return refused
    return queues_of(call, AclOperation.READ, request.group_id, [(request.topic, request.partitions)])


def _alter(request: QueueAlterRequest, call: Request, queue: QueueId, done: OnReply) -> None:
    backend = call.backend
    if request.action == RESET:
        backend.queue_admin.reset(queue, request.offset, done)
    elif request.action == FORGET:
        backend.queues.submit(ForgetQueue(on_reply=done, queue=queue))
    else:
        is_paused = request.action == PAUSE
        backend.queues.submit(PauseQueue(on_reply=done, queue=queue, is_paused=is_paused))


def _put(
    rows: ResponseRows[QueueAlterResponsePartition], number: int, queue: QueueId, reply: QueueReply
) -> None:
    code, message = error_fields(reply)
    rows.put(
        number,
        QueueAlterResponsePartition(partition=queue.partition, error_code=code, error_message=message),
    )
