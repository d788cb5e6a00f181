"""ListTransactions: the transactional ids that this node coordinates."""

from penstock.core.model import ApiError
from penstock.core.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)
from penstock.core.transactions import ListedTransactions, TransactionState
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in, may_use_id
from penstock.server.kafka.router import routes

_STATES = {state.value: state for state in TransactionState}


@routes.handles(ListTransactionsRequest)
def list_transactions(request: ListTransactionsRequest, call: Request) -> None:
    known = tuple(_STATES[name] for name in request.state_filters if name in _STATES)
    unknown = tuple(name for name in request.state_filters if name not in _STATES)

    def done(found: ListedTransactions | ApiError) -> None:
        transactions = () if isinstance(found, ApiError) else found.transactions
        call.reply(
            ListTransactionsResponse(
                throttle_time_ms=call.charge_time(),
                error_code=code_in(found),
                unknown_state_filters=unknown,
                transaction_states=tuple(
                    ListTransactionsResponseTransaction(
                        transactional_id=each.transactional_id,
                        producer_id=each.producer_id,
                        transaction_state=each.state.value,
                    )
                    for each in transactions
                    if may_use_id(call, AclOperation.DESCRIBE, each.transactional_id)
                ),
            )
        )

    if unknown and not known:
        # Whoever asks for nothing but states that do not exist gets nothing.
        done(ListedTransactions(()))
        return
    call.backend.transactions.list_transactions(
        known,
        request.producer_id_filters,
        request.duration_filter,
        request.transactional_id_pattern,
        done,
    )
