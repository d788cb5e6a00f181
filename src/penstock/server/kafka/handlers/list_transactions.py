"""ListTransactions: the transactional ids that this node coordinates."""

from collections.abc import Iterator

from penstock.core.model import ApiError
from penstock.core.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)
from penstock.core.transactions import ListedTransactions, TransactionState
from penstock.security import AclOperation, Resource, ResourceType
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import code_in
from penstock.server.kafka.router import routes

_STATES = {state.value: state for state in TransactionState}


@routes.handles(ListTransactionsRequest)
def list_transactions(request: ListTransactionsRequest, call: Request) -> None:
    # Each once, however often it is named.
    filters = dict.fromkeys(request.state_filters)
    known = tuple([_STATES[name] for name in filters if name in _STATES])
    unknown = tuple([name for name in filters if name not in _STATES])

    def done(found: ListedTransactions | ApiError) -> None:
        call.run(_answer(call, unknown, found))

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


def _answer(call: Request, unknown: tuple[str, ...], found: ListedTransactions | ApiError) -> Iterator[None]:
    rows: list[ListTransactionsResponseTransaction] = []
    for each in () if isinstance(found, ApiError) else found.transactions:
        if call.permits(
            AclOperation.DESCRIBE, Resource(ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ):
            rows.append(
                ListTransactionsResponseTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.value,
                )
            )
        yield
    call.reply(
        ListTransactionsResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code_in(found),
            unknown_state_filters=unknown,
            transaction_states=tuple(rows),
        )
    )
