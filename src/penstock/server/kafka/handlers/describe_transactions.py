"""DescribeTransactions: the state of transactional ids that this node coordinates."""

from collections.abc import Iterator

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopic,
    DescribeTransactionsResponseTransaction,
)
from penstock.core.transactions import DescribedTransaction, DescribeTransaction, Reply, TransactionStored
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    ResponseRows,
    by_topic,
    code_in,
    may_use_id,
    topic_resource,
    unique,
)
from penstock.server.kafka.router import routes

Row = DescribeTransactionsResponseTransaction


@routes.handles(DescribeTransactionsRequest)
def describe_transactions(request: DescribeTransactionsRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named: a short request must not have an endless response.
    transactional_ids = yield from unique(request.transactional_ids)
    rows: ResponseRows[Row] = ResponseRows(
        len(transactional_ids),
        lambda found: call.reply(
            DescribeTransactionsResponse(throttle_time_ms=call.charge_time(), transaction_states=found)
        ),
    )
    for index, transactional_id in enumerate(transactional_ids):
        if may_use_id(call, AclOperation.DESCRIBE, transactional_id):
            _describe(call, transactional_id, rows, index)
        else:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            rows.put(index, _failed(transactional_id, code))
        yield
    rows.end()


def _describe(call: Request, transactional_id: str, rows: ResponseRows[Row], index: int) -> None:
    def done(reply: Reply) -> None:
        if isinstance(reply, DescribedTransaction):
            rows.put(index, _row(call, reply.transaction))
        else:
            rows.put(index, _failed(transactional_id, code_in(reply)))

    call.backend.transactions.submit(DescribeTransaction(on_reply=done, transactional_id=transactional_id))


def _row(call: Request, known: TransactionStored) -> Row:
    topics = by_topic((partition.topic, partition.partition) for partition in known.partitions)
    return Row(
        error_code=ErrorCode.NONE,
        transactional_id=known.transactional_id,
        transaction_state=known.state.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_at,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=tuple(
            DescribeTransactionsResponseTopic(topic=name, partitions=tuple(map(int, partitions)))
            for name, partitions in topics
            if call.permits(AclOperation.DESCRIBE, topic_resource(name))
        ),
    )


def _failed(transactional_id: str, code: ErrorCode) -> Row:
    return Row(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
        topics=(),
    )
