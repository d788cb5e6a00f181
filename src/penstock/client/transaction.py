"""Transactions: records to several partitions, and offsets of consumers, that appear together or not at all.

    with producer.transaction(consumer) as tx:       begin
        for message in consumer.poll_batch():
            tx.send("out", work(message))
                                                     offsets of what was returned, commit

The block's end commits; an exception aborts, and the consumer reads again what the transaction would
have committed. Retriable errors are retried inside. What is left for a program:

    TransactionAborted   nothing happened; do it again
    ProducerFenced       a newer producer has this transactional id; end
    FatalFailure         make a new producer, which aborts what this one has left behind
    DeadlineExceeded     likewise; it may have been committed

Left out: taking part in two-phase commits of others.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from penstock.client.backoff import Backoff
from penstock.client.endpoint import ClientError, reason
from penstock.client.errors import (
    DeadlineExceeded,
    FatalFailure,
    RequestFailed,
    TransactionAborted,
    failure,
    kafka_error,
)
from penstock.client.message import TopicPartition
from penstock.client.record_types import SentKey as K
from penstock.client.record_types import SentValue as V

if TYPE_CHECKING:
    from penstock.client.sync_producer import DeliveryFuture, HeadersLike, Producer

# librdkafka goes on where it was when it is called again, so that Ctrl-C comes through.
TURN_SECONDS = 1.0


class OffsetSource(Protocol):
    """A consumer, as a transaction sees it."""

    def uncommitted(self) -> dict[TopicPartition, int]: ...

    def group_metadata(self) -> Any: ...

    def committed_elsewhere(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def rewind(self) -> None: ...


class _Source(Protocol):
    """What consumers of both kinds have in common."""

    def uncommitted(self) -> dict[TopicPartition, int]: ...

    def committed_elsewhere(self, offsets: Mapping[TopicPartition, int]) -> None: ...


S = TypeVar("S", bound=_Source)


class TransactionOffsets(Generic[S]):
    """The consumers whose offsets are part of a transaction, with what they are.

    One of them may be the transaction's own, whose offsets are sent when it is committed.
    """

    def __init__(self, own: S | None) -> None:
        self._own = own
        self._sent: list[tuple[S, dict[TopicPartition, int]]] = []

    def add(self, consumer: S, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        """Note what is about to be sent: these offsets, or those of everything the consumer has returned."""
        wanted = consumer.uncommitted() if offsets is None else dict(offsets)
        self._sent.append((consumer, wanted))
        return wanted

    def unsent(self) -> S | None:
        """The transaction's own consumer, unless its offsets were sent."""
        return None if any(self._own is one for one, _ in self._sent) else self._own

    def consumers(self) -> list[S]:
        """All that read again if the transaction is aborted."""
        sent, own = [consumer for consumer, _ in self._sent], self.unsent()
        return sent if own is None else [*sent, own]

    def committed(self) -> None:
        """Tell the consumers."""
        for consumer, offsets in self._sent:
            consumer.committed_elsewhere(offsets)


class Transaction(Generic[K, V]):
    """One transaction of a producer; made by `Producer.transaction`."""

    def __init__(self, producer: "Producer[K, V]", consumer: OffsetSource | None, timeout: float) -> None:
        self._producer = producer
        self._timeout = timeout
        self._offsets = TransactionOffsets(consumer)
        self._is_open = False

    def __enter__(self) -> Self:
        begin(self._producer.client)
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            # Unless the block has committed or aborted by itself.
            if self._is_open:
                self.commit()
        elif isinstance(error, FatalFailure):
            self._is_open = False
            self._rewind()
        elif self._is_open:
            self.abort()

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: "HeadersLike | None" = None,
    ) -> "DeliveryFuture":
        """As `Producer.send`; readers of committed records see it once the transaction is committed."""
        if not self._is_open:
            raise ClientError("the transaction has ended")
        try:
            return self._producer.send(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers
            )
        except RequestFailed as error:
            raise refusal(error) from None

    def send_offsets(
        self, consumer: OffsetSource, offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit a consumer's offsets with the transaction: those of everything it has returned, or these."""
        wanted = self._offsets.add(consumer, offsets)
        if wanted:
            send_offsets(self._producer.client, consumer.group_metadata(), wanted, self._timeout)

    def commit(self) -> None:
        """Commit; TransactionAborted if that was refused, and nothing of it is visible."""
        try:
            if (consumer := self._offsets.unsent()) is not None:
                self.send_offsets(consumer)
            finish("committing", self._producer.client.commit_transaction, self._timeout)
        except (FatalFailure, DeadlineExceeded):
            # Nobody knows what has become of it; the next producer with this id brings it to an end.
            self._is_open = False
            self._rewind()
            raise
        except ClientError:
            self.abort()
            raise
        self._is_open = False
        self._offsets.committed()

    def abort(self) -> None:
        """Abort. The consumers read again what the transaction would have committed."""
        self._is_open = False
        try:
            self._rewind()
        finally:
            # Whatever became of the consumers: readers would wait for the transaction until it times out.
            finish("aborting", self._producer.client.abort_transaction, self._timeout)
        # Its records were given up on purpose.
        self._producer.forget_failures()

    def _rewind(self) -> None:
        for consumer in self._offsets.consumers():
            consumer.rewind()


def refusal(error: RequestFailed) -> RequestFailed:
    """Why a record was not taken: after a failure only an abort can follow."""
    if error.name != "_STATE":
        return error
    return TransactionAborted(f"the transaction has failed before: {error}", error.name)


def begin(client: Any) -> None:
    """Begin a transaction, which asks nobody."""
    from confluent_kafka import KafkaException

    try:
        client.begin_transaction()
    except KafkaException as error:
        raise failure("beginning a transaction", error) from None


def send_offsets(
    client: Any, group_metadata: Any, offsets: Mapping[TopicPartition, int], timeout: float
) -> None:
    """Make offsets of a group part of the transaction."""
    from confluent_kafka import TopicPartition as LibrdkafkaTopicPartition

    native = [
        LibrdkafkaTopicPartition(one.topic, one.partition, offset) for one, offset in sorted(offsets.items())
    ]
    finish(
        "sending offsets",
        lambda seconds: client.send_offsets_to_transaction(native, group_metadata, seconds),
        timeout,
    )


def finish(what: str, call: Callable[[float], None], timeout: float) -> None:
    """Call until it is done; TransactionAborted if only an abort can follow."""
    from confluent_kafka import KafkaException

    deadline = time.perf_counter() + timeout
    backoff = Backoff()
    while True:
        try:
            call(TURN_SECONDS)
        except KafkaException as exception:
            error = kafka_error(exception)
            if not error.fatal() and error.txn_requires_abort():
                raise TransactionAborted(
                    f"{what}: the transaction was aborted: {reason(error)}", error.name()
                ) from None
            if error.fatal() or not error.retriable():
                raise failure(what, error) from None
            if time.perf_counter() > deadline:
                raise DeadlineExceeded(f"{what}: not done within {timeout} s: {reason(error)}") from None
            if error.name() != "_TIMED_OUT":
                time.sleep(backoff.next_seconds())
        else:
            return
