"""InitProducerId: starting an idempotent producer, or a transactional one.

Two-phase commit (KIP-939) is refused as a Kafka that does not allow it would.
"""

from functools import partial

from penstock.core.model import ApiError, ProducerEpoch, ProducerId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.core.transactions import InitProducer, ProducerGranted, ProducerIdentity, Reply
from penstock.security import AclOperation, ResourceType
from penstock.server.kafka.errors import code_of, transaction_code
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, may_use_id
from penstock.server.kafka.router import routes

NO_PRODUCER = -1
NO_EPOCH = -1
# Kafka keeps the last epoch for fencing.
LAST_EPOCH = 2**15 - 2
FENCED_SINCE = 4


@routes.handles(InitProducerIdRequest)
def init_producer_id(request: InitProducerIdRequest, call: Request) -> None:
    code = _problem(request, call)
    if code is not ErrorCode.NONE:
        _reply(call, code)
    elif request.transactional_id is not None:
        _begin(request, call, request.transactional_id)
    elif _may_go_on(request, call):
        _reply(call, ErrorCode.NONE, request.producer_id, request.producer_epoch + 1)
    else:
        call.backend.producer_ids.next(lambda given: _give(call, given))


def _problem(request: InitProducerIdRequest, call: Request) -> ErrorCode:
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not _may_write(call):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not may_use_id(call, AclOperation.WRITE, transactional_id) or request.enable_2pc:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.UNSUPPORTED_VERSION if request.keep_prepared_txn else ErrorCode.NONE


def _begin(request: InitProducerIdRequest, call: Request, transactional_id: str) -> None:
    expected = None
    if request.producer_id != NO_PRODUCER:
        expected = ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    call.backend.transactions.submit(
        InitProducer(
            on_reply=partial(_begun, call),
            transactional_id=transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=expected,
        )
    )


def _begun(call: Request, reply: Reply) -> None:
    if isinstance(reply, ProducerGranted):
        _reply(call, ErrorCode.NONE, *reply.producer)
    else:
        _reply(call, transaction_code(reply, knows_fenced=call.version >= FENCED_SINCE))


def _may_write(call: Request) -> bool:
    """Whoever may write to any topic may be a producer (KIP-679)."""
    operation = AclOperation.IDEMPOTENT_WRITE
    allowed = call.permits(operation, CLUSTER) or call.authorize_any(AclOperation.WRITE, ResourceType.TOPIC)
    return call.decide(operation, CLUSTER, allowed=allowed)


def _may_go_on(request: InitProducerIdRequest, call: Request) -> bool:
    """Whether a producer can keep its id with the next epoch (KIP-360).

    An id that was never allocated is rejected, since it may be given to another producer later.
    """
    given_out = call.backend.controller.image.next_producer_id
    return 0 <= request.producer_id < given_out and 0 <= request.producer_epoch < LAST_EPOCH


def _give(call: Request, given: ProducerId | ApiError) -> None:
    if isinstance(given, ApiError):
        _reply(call, code_of(given))
    else:
        _reply(call, ErrorCode.NONE, given, 0)


def _reply(
    call: Request, code: ErrorCode, producer_id: int = NO_PRODUCER, producer_epoch: int = NO_EPOCH
) -> None:
    call.reply(
        InitProducerIdResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
    )
