"""QueueReceive: leases records of a group's queues to a consumer. An API of Penstock, not of Kafka."""

from functools import partial

from penstock.broker.queues.delayed_receive import GroupReceiveRequest
from penstock.broker.queues.peers import LeasedSlice, ReceivedRecords
from penstock.broker.queues.queue_view import WAIT_MS_MAX
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveResponse,
    QueueReceiveResponseSlice,
)
from penstock.core.queues import QueueId
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.queue_requests import QueueRefusal, group_refusal, queues_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import topic_resource
from penstock.server.kafka.router import routes

# What is asked for beyond that is not an error: a reply may always have less.
BYTES_MAX = 8 << 20
# The duration of the group's settings.
SETTING_OF_GROUP = -1


@routes.handles(QueueReceiveRequest)
def queue_receive(request: QueueReceiveRequest, call: Request) -> None:
    queues = _queues(request, call)
    if isinstance(queues, QueueRefusal):
        _refuse(call, queues)
        return
    left = call.quota_left(QuotaType.BYTES_OUT)
    if left == 0:
        # As when nothing has come: what is leased is sent, so a consumer that owes gets no leases.
        call.charge(QuotaType.BYTES_OUT, 0)
        _answer(call, request.group_id, queues[0], ReceivedRecords(queues[0]))
        return
    cancel = call.backend.queues.receive_any(
        GroupReceiveRequest(
            queues=queues,
            consumer=request.consumer,
            records_max=request.records_max,
            bytes_max=min(request.bytes_max, BYTES_MAX if left is None else min(left, BYTES_MAX)),
            wait_ms=call.within_login(request.wait_ms),
            lease_ms=None if request.lease_ms == SETTING_OF_GROUP else request.lease_ms,
        ),
        partial(_answer, call, request.group_id),
    )
    # A consumer that has gone must not get leases: its records would wait for their ends.
    call.on_abandoned(cancel)


def _queues(request: QueueReceiveRequest, call: Request) -> tuple[QueueId, ...] | QueueRefusal:
    problem = _problem_with(request)
    if problem:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, problem)
    refused = group_refusal(call, AclOperation.READ, request.group_id)
    if refused is not None:
        return refused
    topics = [(each.topic, each.partitions) for each in request.topics]
    return queues_of(call, AclOperation.READ, request.group_id, topics)


def _problem_with(request: QueueReceiveRequest) -> str:
    if not 0 <= request.wait_ms <= WAIT_MS_MAX:
        return f"wait_ms: a request waits for 0 to {WAIT_MS_MAX} ms"
    if request.records_max < 1:
        return "records_max: at least one record must be asked for"
    if request.bytes_max < 1:
        return "bytes_max: at least one byte must be asked for"
    return ""


def _refuse(call: Request, refused: QueueRefusal) -> None:
    call.reply(
        QueueReceiveResponse(
            throttle_time_ms=call.charge_time(), error_code=refused.code, error_message=refused.message
        )
    )


def _answer(call: Request, group_id: str, queue: QueueId, reply: ReceivedRecords | ApiError) -> None:
    if isinstance(reply, ApiError):
        _refuse(call, QueueRefusal.of(reply))
        return
    topic = call.backend.controller.image.topic_name(queue.topic_id) or ""
    # What was taken back while the request waited. Others get what was leased when the lease has run out.
    refused = group_refusal(call, AclOperation.READ, group_id)
    if not call.is_login_current or not call.authorize(AclOperation.READ, topic_resource(topic)):
        refused = QueueRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {topic}: not authorized")
    if refused is not None:
        _refuse(call, refused)
        return
    if reply.slices:
        call.charge(QuotaType.BYTES_OUT, sum([len(each.piece.content) for each in reply.slices]))
    call.reply(
        QueueReceiveResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE,
            lease_ms=reply.lease_ms,
            is_paused=reply.is_paused,
            topic=topic,
            topic_id=queue.topic_id,
            partition=queue.partition,
            token=reply.token,
            slices=tuple([_row(each) for each in reply.slices]),
        )
    )


def _row(leased: LeasedSlice) -> QueueReceiveResponseSlice:
    piece = leased.piece
    return QueueReceiveResponseSlice(
        attempt=leased.attempt,
        base_offset=piece.base_offset,
        base_timestamp=piece.base_timestamp,
        append_time=piece.append_time,
        records=piece.content,
    )
