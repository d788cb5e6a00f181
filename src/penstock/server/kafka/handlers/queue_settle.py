"""QueueSettle: what became of received records. An API of Penstock, not of Kafka."""

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import TypeAlias

from penstock.broker.queues.queue_view import claims_of
from penstock.core.model import (
    ApiError,
    ErrorKind,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
)
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_settle import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RENEW,
    RETURN,
    QueueSettleRequest,
    QueueSettleRequestLease,
    QueueSettleResponse,
    QueueSettleResponseResult,
)
from penstock.core.queues import (
    AcknowledgeRecords,
    ClaimCommand,
    LeaseClaim,
    OnReply,
    QueueId,
    RejectRecords,
    ReleaseRecords,
    RenewLeases,
    ReturnRecords,
    TransactionProducer,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.queue_requests import QueueRefusal, group_refusal
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import may_use_id, topic_resource
from penstock.server.kafka.router import routes

RECEIPTS_MAX = 2_000
# The backoff of the group's settings; the duration that the lease has.
UNCHANGED = -1
NOT_AUTHORIZED = ApiError(ErrorKind.NOT_AUTHORIZED)
Claim: TypeAlias = tuple[QueueId, LeaseClaim] | ApiError
SettleCommand = Callable[[OnReply, QueueId, tuple[LeaseClaim, ...]], ClaimCommand]


@routes.handles(QueueSettleRequest)
def queue_settle(request: QueueSettleRequest, call: Request) -> None:
    refused = _refusal(request, call)
    if refused is not None:
        call.reply(
            QueueSettleResponse(
                throttle_time_ms=call.charge_time(), error_code=refused.code, error_message=refused.message
            )
        )
        return
    leases = [_claimed(request.group_id, each) for each in request.leases]
    call.backend.queues.settle(
        _allowed(call, [*claims_of(request.group_id, request.receipts), *leases]),
        _command(request, call),
        partial(_answer, call),
        transactional_id=request.transactional_id,
    )


def _allowed(call: Request, claims: list[Claim]) -> list[Claim]:
    """The claims, and an error for each record of a topic that the caller may not read (any more)."""
    if call.authorizer is None:
        return claims
    image = call.backend.controller.image
    names = {
        topic_id: image.topic_name(topic_id)
        for topic_id in dict.fromkeys(each[0].topic_id for each in claims if not isinstance(each, ApiError))
    }
    denied = {
        topic_id: None
        for topic_id, name in names.items()
        if name is not None and not call.authorize(AclOperation.READ, topic_resource(name))
    }
    if not denied:
        return claims
    found: list[Claim] = []
    for each in claims:
        if isinstance(each, ApiError) or each[0].topic_id not in denied:
            found.append(each)
        else:
            found += [NOT_AUTHORIZED] * each[1].records
    return found


def _refusal(request: QueueSettleRequest, call: Request) -> QueueRefusal | None:
    problem = _problem_with(request)
    if problem:
        return QueueRefusal(ErrorCode.INVALID_REQUEST, problem)
    if request.transactional_id is not None and not may_use_id(
        call, AclOperation.WRITE, request.transactional_id
    ):
        message = f"{request.transactional_id}: not authorized"
        return QueueRefusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    return group_refusal(call, AclOperation.READ, request.group_id)


def _problem_with(request: QueueSettleRequest) -> str:
    is_transactional = request.transactional_id is not None
    if request.action not in (ACKNOWLEDGE, RELEASE, REJECT, RENEW, RETURN):
        return f"action: there is no {request.action}"
    for lease in request.leases:
        if not 0 < lease.count <= RECEIPTS_MAX or lease.offset < 0 or lease.token < 0:
            return "leases: this is no lease of delivered messages"
    records = len(request.receipts) + sum([lease.count for lease in request.leases])
    if not 0 < records <= RECEIPTS_MAX:
        return f"receipts: one request has 1 to {RECEIPTS_MAX:,}"
    if is_transactional and request.action != ACKNOWLEDGE:
        return "transactional_id: an acknowledgement alone can be part of a transaction"
    if is_transactional != (request.producer_id >= 0 and request.producer_epoch >= 0):
        return "transactional_id: a transaction has an id and a producer"
    return ""


def _command(request: QueueSettleRequest, call: Request) -> SettleCommand:
    consumer, reason = request.consumer, request.reason
    jitter = call.backend.queues.jitter() if request.action == RELEASE else 0

    def command(on_reply: OnReply, queue: QueueId, claims: tuple[LeaseClaim, ...]) -> ClaimCommand:
        if request.action == ACKNOWLEDGE:
            producer = None
            if request.transactional_id is not None:
                producer = TransactionProducer(
                    ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
                )
            return AcknowledgeRecords(
                on_reply=on_reply, queue=queue, claims=claims, consumer=consumer, producer=producer
            )
        if request.action == RELEASE:
            return ReleaseRecords(
                on_reply=on_reply,
                queue=queue,
                claims=claims,
                consumer=consumer,
                delay_ms=None if request.delay_ms == UNCHANGED else request.delay_ms,
                jitter=jitter,
                reason=reason,
            )
        if request.action == REJECT:
            return RejectRecords(
                on_reply=on_reply, queue=queue, claims=claims, consumer=consumer, reason=reason
            )
        if request.action == RETURN:
            return ReturnRecords(on_reply=on_reply, queue=queue, claims=claims, consumer=consumer)
        lease_ms = None if request.lease_ms == UNCHANGED else request.lease_ms
        return RenewLeases(
            on_reply=on_reply, queue=queue, claims=claims, consumer=consumer, lease_ms=lease_ms
        )

    return command


def _answer(call: Request, results: list[ApiError | None]) -> None:
    call.reply(
        QueueSettleResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE,
            results=tuple([_row(error, len(list(same))) for error, same in groupby(results)]),
        )
    )


def _claimed(group_id: str, lease: QueueSettleRequestLease) -> tuple[QueueId, LeaseClaim]:
    queue = QueueId(group_id, TopicId(lease.topic_id), PartitionIndex(lease.partition))
    return queue, LeaseClaim(Offset(lease.offset), lease.attempt, lease.token, lease.count)


def _row(error: ApiError | None, count: int) -> QueueSettleResponseResult:
    if error is None:
        return QueueSettleResponseResult(count=count, error_code=ErrorCode.NONE)
    # One whose queue is gone is not leased to anybody, whatever the reason.
    kind = ErrorKind.INVALID_RECORD_STATE if error.kind is ErrorKind.UNKNOWN_GROUP else error.kind
    found = ApiError(kind, error.detail)
    return QueueSettleResponseResult(count=count, error_code=code_of(found), error_message=message_of(found))
