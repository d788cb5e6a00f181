"""EndTxn: committing or aborting a transaction."""

from functools import partial

from penstock.core.model import ProducerEpoch, ProducerId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.core.transactions import (
    EPOCH_PER_TRANSACTION,
    EndTransaction,
    ProducerGranted,
    ProducerIdentity,
    Reply,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import transaction_code
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import may_use_id
from penstock.server.kafka.router import routes

FENCED_SINCE = 2
# From here on the response has the epoch of the next transaction (KIP-890).
EPOCH_SINCE = 5


@routes.handles(EndTxnRequest)
def end_txn(request: EndTxnRequest, call: Request) -> None:
    if not may_use_id(call, AclOperation.WRITE, request.transactional_id):
        _answer(call, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    call.backend.transactions.submit(
        EndTransaction(
            on_reply=partial(_reply, call),
            transactional_id=request.transactional_id,
            producer=ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
            is_commit=request.committed,
            client_version=EPOCH_PER_TRANSACTION if call.version >= EPOCH_SINCE else 0,
        )
    )


def _reply(call: Request, reply: Reply) -> None:
    if isinstance(reply, ProducerGranted):
        _answer(call, ErrorCode.NONE, *reply.producer)
    else:
        _answer(call, transaction_code(reply, knows_fenced=call.version >= FENCED_SINCE))


def _answer(call: Request, code: ErrorCode, producer_id: int = -1, producer_epoch: int = -1) -> None:
    call.reply(
        EndTxnResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
    )
