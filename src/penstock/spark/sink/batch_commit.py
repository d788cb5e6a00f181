"""The driver's side of batch commit: one request commits what all tasks of a batch wrote.

It is an API of Penstock's own, so librdkafka has no call for it: it goes over a connection of ours, to the
first of the bootstrap brokers that responds. Where the login is one that ours do not have, there is no
batch commit here.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.client import ClientError, Disconnected
from penstock.client.connection import BrokerConnection, api_of, security_of
from penstock.client.coordinator import COORDINATOR_CHANGES, TRANSACTION, error_name, find_coordinator
from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.batch_commit import (
    BatchCommitRequest,
    BatchCommitRequestTransaction,
    BatchCommitResponse,
)
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.runtime.loop import MachineClock
from penstock.spark.errors import PipelineError
from penstock.spark.kafka_options import kafka_endpoint

PATIENCE_MS = 120_000
ABORT_PATIENCE_MS = 10_000
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0
_PASSING = COORDINATOR_CHANGES | frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
})  # fmt: skip
T = TypeVar("T")


class TaskTransaction(NamedTuple):
    """A transaction that a task wrote in and left open, and the producer that did."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class _NotNow(Exception):
    """A retry may help."""


class BatchCommitter:
    """Commits batches, and ends the transactions of those that will not be."""

    def __init__(self, settings: Mapping[str, str], patience_ms: int = PATIENCE_MS) -> None:
        self._endpoint = kafka_endpoint(settings)
        self._patience_ms = patience_ms

    @staticmethod
    def speaks(settings: Mapping[str, str]) -> bool:
        """Whether the broker could be asked at all."""
        return not kafka_endpoint(settings).needs_librdkafka

    def is_offered(self) -> bool:
        """Whether the broker announces batch commit."""
        return self._patiently(
            lambda connection: api_of(BatchCommitRequest).key in connection.versions, self._patience_ms
        )

    def commit(self, sink: str, batch: str, transactions: Sequence[TaskTransaction]) -> bool:
        """Commit them all; False if the batch was committed before, by others that are not listed here."""
        request = BatchCommitRequest(
            sink=sink,
            batch=batch,
            transactions=tuple(BatchCommitRequestTransaction(**one._asdict()) for one in transactions),
        )

        def ask(connection: BrokerConnection) -> bool:
            answer: BatchCommitResponse = connection.ask(request)
            if answer.error_code != ErrorCode.NONE:
                why = f"{error_name(answer.error_code)}: {answer.error_message or 'no reason was given'}"
                if answer.error_code in _PASSING:
                    raise _NotNow(why)
                raise PipelineError(
                    f"batch {batch} of sink {sink} was refused, and nothing of it counts: {why}"
                )
            return not answer.is_repeat

        return self._patiently(ask, self._patience_ms)

    def abort(self, transactions: Sequence[TaskTransaction]) -> None:
        """End transactions that nobody will commit: a producer that begins anew aborts what it finds.

        Otherwise they would hold back whoever reads committed records until they time out.
        """
        for one in transactions:
            self._patiently(lambda connection, one=one: _begin_anew(connection, one), ABORT_PATIENCE_MS)  # type: ignore[misc]

    def _patiently(self, ask: Callable[[BrokerConnection], T], patience_ms: int) -> T:
        clock = MachineClock()
        deadline = clock.now() + patience_ms * MILLISECOND
        pause = PAUSE_SECONDS
        while True:
            why = ""
            for address in self._endpoint.addresses():
                try:
                    connection = BrokerConnection(address, security=security_of(self._endpoint))
                    try:
                        return ask(connection)
                    finally:
                        connection.close()
                except (Disconnected, _NotNow) as error:
                    why = str(error)
                except ClientError as error:
                    raise PipelineError(str(error)) from None
            if clock.now() >= deadline:
                raise PipelineError(f"{self._endpoint.bootstrap}: {why}")
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)


def _begin_anew(connection: BrokerConnection, transaction: TaskTransaction) -> None:
    where = find_coordinator(connection, TRANSACTION, transaction.transactional_id)
    if where.error_code != ErrorCode.NONE:
        raise _NotNow(error_name(where.error_code))
    coordinator = connection.sibling((where.host, where.port))
    try:
        answer: InitProducerIdResponse = coordinator.ask(
            InitProducerIdRequest(
                transactional_id=transaction.transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
            )
        )
    finally:
        coordinator.close()
    # Anything else: somebody newer has begun with this id, and ended the transaction by that.
    if answer.error_code in _PASSING:
        raise _NotNow(error_name(answer.error_code))
