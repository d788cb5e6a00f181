"""BatchCommit: committing many transactions at once. An API of Penstock, not of Kafka."""

from collections.abc import Iterator
from functools import partial

from penstock.core.model import ApiError, ErrorKind, ProducerEpoch, ProducerId
from penstock.core.protocol.messages.batch_commit import BatchCommitRequest, BatchCommitResponse
from penstock.core.transactions import SINK_SEPARATOR, BatchDone, BatchMember
from penstock.security import AclOperation
from penstock.server.kafka.errors import message_of, transaction_code
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected, may_use_id
from penstock.server.kafka.router import routes


@routes.handles(BatchCommitRequest)
def batch_commit(request: BatchCommitRequest, call: Request) -> Iterator[None]:
    # A batch without transactions takes its key as well: whoever may use ids of the sink may do that.
    ids = [transaction.transactional_id for transaction in request.transactions]
    for each in ids or [request.sink + SINK_SEPARATOR]:
        if not may_use_id(call, AclOperation.WRITE, each):
            detail = f"{each}: not authorized"
            _answer(call, ApiError(ErrorKind.TRANSACTIONAL_ID_NOT_AUTHORIZED, detail))
            return
        yield
    members = yield from collected(
        BatchMember(
            transaction.transactional_id,
            ProducerId(transaction.producer_id),
            ProducerEpoch(transaction.producer_epoch),
        )
        for transaction in request.transactions
    )
    call.backend.batch_commit.commit(request.sink, request.batch, members, partial(_answer, call))


def _answer(call: Request, outcome: BatchDone | ApiError) -> None:
    call.reply(
        BatchCommitResponse(
            throttle_time_ms=call.charge_time(),
            error_code=transaction_code(outcome, knows_fenced=True),
            error_message=message_of(outcome) if isinstance(outcome, ApiError) else None,
            is_repeat=isinstance(outcome, BatchDone) and outcome.is_repeat,
        )
    )
