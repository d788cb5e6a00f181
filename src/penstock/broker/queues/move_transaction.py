"""A transaction of a node itself, in which records move from one topic to another: dead letters, and back.

    begin ── append, to one partition or several ── a command to the queue they leave ── commit or abort

The producer's epoch is new in every transaction, so that what is late touches no other one. A transactional
id belongs to one move at a time: whoever begins with it fences the one before, whose open transaction is
aborted; one that nobody ends times out.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from penstock.broker.queues.peers import OnAppended
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, TopicPartition
from penstock.core.queues import QueueCommand, TransactionProducer
from penstock.core.records import CompressionType, Record, write_batch
from penstock.core.transactions import (
    EPOCH_PER_TRANSACTION,
    EndTransaction,
    InitProducer,
    ProducerGranted,
    ProducerIdentity,
    Reply,
)
from penstock.runtime import Callback, ExecutorKind, Runtime

# Of one transaction.
RECORDS_MAX = 200
BATCH_BYTES_MAX = 256 << 10
# Beside the records: the header of the batch, and the lengths in it.
BATCH_OVERHEAD_BYTES = 200
RECORD_OVERHEAD_BYTES = 40
TRANSACTION_TIMEOUT_MS = 30_000
# The transaction before has not ended yet: how soon to try again, and how often.
RETRY_MS = 50
RETRIES_MAX = 100
# The coordinator of transactions moves, or has the transaction before to end: it may know more later.
RETRIABLE = (
    ErrorKind.COORDINATOR_LOADING,
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_COORDINATOR,
    ErrorKind.CONCURRENT_TRANSACTIONS,
)
NOT_ENDED = ApiError(ErrorKind.CONCURRENT_TRANSACTIONS, "the transaction before has not ended")
Moved = TypeVar("Moved")
# Called once: with the error, or None when the step is done.
OnStep: TypeAlias = Callable[[ApiError | None], None]


class MovePeers(Protocol):
    """The nodes that take part in a move."""

    def submit(self, command: QueueCommand, transactional_id: str | None = None) -> None: ...

    def submit_transaction(self, command: InitProducer | EndTransaction) -> None: ...

    def append(
        self, partition: TopicPartition, transactional_id: str, batch: bytes, done: OnAppended
    ) -> None: ...


class MoveTransaction:
    """Transactions under one transactional id, one after the other."""

    def __init__(
        self, runtime: Runtime, peers: MovePeers, transactional_id: str, retry_ms: int = RETRY_MS
    ) -> None:
        self.transactional_id = transactional_id
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._spawn = runtime.spawn
        self._peers = peers
        self._identity: ProducerIdentity | None = None
        self._retries = 0
        self._retry_ms = retry_ms

    @property
    def producer(self) -> TransactionProducer:
        """As the queue's coordinator has to know it."""
        identity = self._known
        return TransactionProducer(identity.producer_id, identity.epoch)

    @property
    def is_begun(self) -> bool:
        """Whether the id is this move's: whoever had it before is fenced."""
        return self._identity is not None

    def begin(self, done: OnStep) -> None:
        self._retries = 0
        if self._identity is None:
            self._init(done)
        else:
            done(None)

    def append(
        self, target: TopicPartition, records: Sequence[Record], batch_bytes_max: int, done: OnStep
    ) -> None:
        """One batch; at most one per partition and transaction.

        Compressed if the topic does not take so many bytes: perhaps it was where the records come from.
        """
        size_bytes = sum(map(_size_of, records))
        self.append_written(target, partial(write_batch, records), size_bytes, batch_bytes_max, done)

    def append_written(
        self,
        target: TopicPartition,
        write: Callable[..., bytearray],
        size_bytes: int,
        batch_bytes_max: int,
        done: OnStep,
    ) -> None:
        """The same for a batch of about so many bytes that `write` returns, as `write_batch` does."""
        identity = self._known
        write = partial(
            write,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            transactional=True,
        )
        if size_bytes <= batch_bytes_max - BATCH_OVERHEAD_BYTES:
            self._append(target, bytes(write()), done)
            return

        def written(batch: bytearray) -> None:
            self._append(target, bytes(batch), done)

        def failed(error: Exception) -> None:
            done(ApiError(ErrorKind.STORAGE_FAILED, f"the batch could not be compressed: {error}"))

        work = partial(write, codec=CompressionType.ZSTD)
        self._spawn.spawn(work, written, failed, ExecutorKind.WORKER)

    def submit(self, command: QueueCommand) -> None:
        """The command ends records of a queue, with this transaction's producer."""
        self._peers.submit(command, self.transactional_id)

    def commit(self, done: OnStep) -> None:
        """An error says that the outcome is not known here: the queue's coordinator hears of it."""

        def ended(reply: Reply) -> None:
            if isinstance(reply, ProducerGranted):
                self._identity = reply.producer
                done(None)
            else:
                self._identity = None
                done(_error(reply))

        self._end(True, ended)

    def abort(self, done: Callback) -> None:
        def ended(_: Reply) -> None:
            self._identity = None
            done()

        self._end(False, ended)

    @property
    def _known(self) -> ProducerIdentity:
        assert self._identity is not None, "no transaction was begun"
        return self._identity

    def _init(self, done: OnStep) -> None:
        def replied(reply: Reply) -> None:
            if isinstance(reply, ProducerGranted):
                self._identity = reply.producer
                done(None)
            elif isinstance(reply, ApiError) and reply.kind is ErrorKind.CONCURRENT_TRANSACTIONS:
                self._again(partial(self._init, done), done)
            else:
                done(_error(reply))

        self._peers.submit_transaction(
            InitProducer(
                on_reply=replied,
                transactional_id=self.transactional_id,
                timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
        )

    def _append(self, target: TopicPartition, batch: bytes, done: OnStep) -> None:
        def appended(error: ApiError | None) -> None:
            if error is not None and error.kind is ErrorKind.CONCURRENT_TRANSACTIONS:
                # The markers of the transaction before are under way.
                self._again(partial(self._append, target, batch, done), done)
            else:
                done(error)

        self._peers.append(target, self.transactional_id, batch, appended)

    def _end(self, is_commit: bool, ended: Callable[[Reply], None]) -> None:
        self._retries = 0
        self._try_end(is_commit, ended)

    def _try_end(self, is_commit: bool, ended: Callable[[Reply], None]) -> None:
        def replied(reply: Reply) -> None:
            if isinstance(reply, ApiError) and reply.kind in RETRIABLE:
                # Repeating it does no harm: the outcome stays the same.
                self._again(partial(self._try_end, is_commit, ended), lambda _: ended(reply))
            else:
                ended(reply)

        self._peers.submit_transaction(
            EndTransaction(
                on_reply=replied,
                transactional_id=self.transactional_id,
                producer=self._known,
                is_commit=is_commit,
                client_version=EPOCH_PER_TRANSACTION,
            )
        )

    def _again(self, step: Callback, done: OnStep) -> None:
        self._retries += 1
        if self._retries * self._retry_ms > RETRIES_MAX * RETRY_MS:
            done(NOT_ENDED)
            return
        self._timers.at(Instant(self._clock.now() + self._retry_ms * MILLISECOND), step)


def portion(letters: list[tuple[Moved, Record]], batch_bytes_max: int) -> list[tuple[Moved, Record]]:
    """As many as fit into one batch of a topic that takes batches of so many bytes, and at least one."""
    size, limit = 0, min(BATCH_BYTES_MAX, batch_bytes_max - BATCH_OVERHEAD_BYTES)
    for at, (_, record) in enumerate(letters):
        size += _size_of(record)
        if at and size > limit:
            return letters[:at]
    return letters


def _size_of(record: Record) -> int:
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") + 10 for name, value in record.headers)


def _error(reply: object) -> ApiError:
    if isinstance(reply, ApiError):
        return reply
    return ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, f"an unexpected reply: {reply}")
