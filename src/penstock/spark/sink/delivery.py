"""How records get into topics, and when they count.

Only this module knows the delivery guarantee. Tasks send through a TaskDelivery and
return a receipt; the driver passes all receipts of a batch to the TopicDelivery that made them.
With at-least-once a record counts when its task has seen it acknowledged, and the driver has
nothing left to decide. With exactly-once a task writes in a transaction with the id `<query>#<task>` and
leaves it open; all of them are committed by the driver's one request, under the key (query, batch). A
second try of a task begins anew with the same id, which aborts what the first one wrote. A second
try of a batch that was committed already is aborted as a whole.

Spark runs one task after the other in the same Python process. A new producer asks the broker
for its id, and where librdkafka has no connection yet it asks again only after half a second:
longer than a whole batch takes otherwise. So a producer whose task ended well is kept for the
next one, which uses it alone; one that failed is never kept, and neither is one with a transaction,
which the commit makes useless.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.client import ANY_PARTITION, BulkProducer, ClientError, OpenTransactionProducer, SingleRecord
from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.kafka_options import BOOTSTRAP, kafka_endpoint
from penstock.spark.sink.batch_commit import BatchCommitter, TaskTransaction
from penstock.spark.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions

_log = logging.getLogger(__name__)
SENDERS_MAX = 4
_Settings = tuple[tuple[str, str], ...]
# By process: the threads that serve a producer do not come along in a fork. The parent's stay
# here untouched, since the child could not even close them.
_kept: dict[int, dict[_Settings, BulkProducer]] = {}
# A broker that does not respond before anything was written is probably not there.
OFFER_PATIENCE_MS = 15_000
SINK_SEPARATOR = "#"


def kept_sender(settings: Mapping[str, str]) -> BulkProducer:
    """The producer that the last task with these settings left, or a new one."""
    sender = _ours().pop(_key(settings), None)
    return BulkProducer(kafka_endpoint(settings)) if sender is None else sender


def keep_sender(settings: Mapping[str, str], sender: BulkProducer) -> None:
    """Leave a producer, with nothing on its way, to the next task."""
    sender.forget_topics()
    kept = _ours()
    kept[_key(settings)] = sender
    while len(kept) > SENDERS_MAX:
        del kept[next(iter(kept))]


def _ours() -> dict[_Settings, BulkProducer]:
    return _kept.setdefault(os.getpid(), {})


def _key(settings: Mapping[str, str]) -> _Settings:
    return tuple(sorted(settings.items()))


class TaskId(NamedTuple):
    """Which try of which task of which query is sending; a batch job has no query."""

    query_id: str | None
    partition: int
    attempt: int


class BatchId(NamedTuple):
    """What a commit is keyed by; a batch job is its only batch."""

    query_id: str | None
    batch_id: int | None


class DeliveryReceipt(NamedTuple):
    """What a task returns: its id, how many records were acknowledged, and in which transaction."""

    task: TaskId
    records: int
    transaction: TaskTransaction | None = None


class TaskDelivery(Protocol):
    """The sending side, opened and finished inside one task."""

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partition: int = ANY_PARTITION,
    ) -> None: ...

    def send_each(self, topic: str, records: Iterable[SingleRecord]) -> None: ...

    def finish(self) -> DeliveryReceipt:
        """Wait until all is where it belongs; PipelineError if it is not."""
        ...

    def discard(self) -> None:
        """The task failed: give up on what is on its way."""
        ...


class TopicDelivery(Protocol):
    """One delivery guarantee. A small value: it travels to the tasks."""

    def open(self, task: TaskId) -> TaskDelivery: ...

    def commit(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None:
        """In the driver, when all tasks are done; may be called again for the same batch."""
        ...

    def abort(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None:
        """In the driver, when a task or the commit failed; never undoes a commit."""
        ...


@dataclass(frozen=True, slots=True)
class AtLeastOnceDelivery:
    """Every record is acknowledged before its task ends; a second try sends it a second time."""

    settings: Mapping[str, str] = field(repr=False)

    def open(self, task: TaskId) -> TaskDelivery:
        return _Acknowledged(self.settings, task)

    def commit(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None:
        """All of it counts already."""

    def abort(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None:
        """What was acknowledged stays; the next try repeats it."""


class _Acknowledged:
    """A producer that is opened with the first record: a task without rows costs nothing."""

    def __init__(self, settings: Mapping[str, str], task: TaskId) -> None:
        self._settings = settings
        self._task = task
        self._sender: BulkProducer | None = None
        self._records_before = 0

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partition: int = ANY_PARTITION,
    ) -> None:
        with _one_line():
            self._opened().send(topic, values, keys, partition)

    def send_each(self, topic: str, records: Iterable[SingleRecord]) -> None:
        with _one_line():
            self._opened().send_each(topic, records)

    def finish(self) -> DeliveryReceipt:
        sender, self._sender = self._sender, None
        if sender is None:
            return DeliveryReceipt(self._task, 0)
        with _one_line():
            records = sender.finish() - self._records_before
        keep_sender(self._settings, sender)
        return DeliveryReceipt(self._task, records)

    def discard(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.discard()

    def _opened(self) -> BulkProducer:
        if self._sender is None:
            self._sender = kept_sender(self._settings)
            self._records_before = self._sender.records
        return self._sender


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise PipelineError(str(error)) from None


@dataclass(frozen=True, slots=True)
class ExactlyOnceDelivery:
    """Tasks write in open transactions; the driver commits all of them at once, or none."""

    settings: Mapping[str, str] = field(repr=False)

    def open(self, task: TaskId) -> TaskDelivery:
        return _Transactional(self.settings, task)

    def commit(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None:
        written = _transactions(receipts)
        if not written:
            return
        assert batch.query_id is not None
        committer = BatchCommitter(self.settings)
        if not committer.commit(batch.query_id, str(batch.batch_id), written):
            _log.info("batch %s of %s was committed before; its repetition is aborted", *reversed(batch))
            self._give_up(written)

    def abort(self, receipts: Sequence[DeliveryReceipt], batch: BatchId) -> None:  # noqa: ARG002
        """Ends what is open; a transaction that a commit has taken is not open any more."""
        self._give_up(_transactions(receipts))

    def _give_up(self, written: Sequence[TaskTransaction]) -> None:
        try:
            BatchCommitter(self.settings).abort(written)
        except PipelineError as error:
            _log.warning("transactions stay open until they time out: %s", error)


def _transactions(receipts: Sequence[DeliveryReceipt]) -> list[TaskTransaction]:
    return [receipt.transaction for receipt in receipts if receipt.transaction is not None]


class _Transactional(_Acknowledged):
    """A producer that is opened with the first record, and whose transaction is left open."""

    def finish(self) -> DeliveryReceipt:
        sender, self._sender = self._sender, None
        if sender is None:
            return DeliveryReceipt(self._task, 0)
        assert isinstance(sender, OpenTransactionProducer)
        with _one_line():
            try:
                records = sender.finish()
                transaction = TaskTransaction(self._transactional_id, *sender.identity())
            except BaseException:
                sender.discard()
                raise
        return DeliveryReceipt(self._task, records, transaction)

    def _opened(self) -> BulkProducer:
        if self._sender is None:
            self._sender = OpenTransactionProducer(kafka_endpoint(self._settings), self._transactional_id)
        return self._sender

    @property
    def _transactional_id(self) -> str:
        if self._task.query_id is None:
            raise PipelineError("exactly-once needs a query or a job to write for")
        return f"{self._task.query_id}{SINK_SEPARATOR}{self._task.partition}"


def delivery_for(options: SinkOptions) -> TopicDelivery:
    """What the option `delivery` asks for, or the best that the broker can do.

    SparkOptionError if it cannot do what was asked for.
    """
    if options.delivery == AT_LEAST_ONCE:
        return AtLeastOnceDelivery(options.settings)
    why = _why_not_exactly_once(options.settings)
    if why is None:
        return ExactlyOnceDelivery(options.settings)
    if options.delivery == EXACTLY_ONCE:
        raise SparkOptionError("delivery", f"{why}; use at-least-once and drop repeats by a natural key")
    _log.warning("delivery is at-least-once: %s", why)
    return AtLeastOnceDelivery(options.settings)


def _why_not_exactly_once(settings: Mapping[str, str]) -> str | None:
    """None if the broker announces batch commit, and we can ask for it."""
    # Known without a broker, and so said without waiting for one.
    if not BatchCommitter.speaks(settings):
        return "exactly-once needs a login with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or with a certificate"
    if not BatchCommitter(settings, OFFER_PATIENCE_MS).is_offered():
        return f"exactly-once needs batch commit, which the broker at {settings[BOOTSTRAP]} does not have"
    return None
