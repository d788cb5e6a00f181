"""How records get into topics, and when they count.

Everything that knows about the promise stands here. Tasks send through a TaskDelivery and
answer a receipt; the driver hands all receipts of a batch to the TopicDelivery that made them.
With at-least-once a record counts when its task has seen it acknowledged, and the driver has
nothing left to decide. With batch commit it will count when the driver's commit does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.client import ANY_PARTITION, BulkProducer, ClientError, SingleRecord
from penstock.client.connection import connect
from penstock.core.protocol import APIS
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.settings import kafka_endpoint
from penstock.pipeline.sink.options import EXACTLY_ONCE, SinkOptions
from penstock.pipeline.sink.senders import keep_sender, kept_sender

# The name that the broker's API for it will have in our codec; no broker announces one yet.
BATCH_COMMIT_API = "BatchCommit"


class TaskName(NamedTuple):
    """Which try of which task of which query is sending; a batch job has no query."""

    query_id: str | None
    partition: int
    attempt: int


class BatchName(NamedTuple):
    """What a commit is keyed by; a batch job is its only batch."""

    query_id: str | None
    batch_id: int | None


class Receipt(NamedTuple):
    """What a task answers: who it was, and how many records are where they belong."""

    task: TaskName
    records: int


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

    def finish(self) -> Receipt:
        """Wait until all is where it belongs; PipelineError if it is not."""
        ...

    def discard(self) -> None:
        """The task failed: give up on what is on its way."""
        ...


class TopicDelivery(Protocol):
    """One promise. A small value: it travels to the tasks."""

    def open(self, task: TaskName) -> TaskDelivery: ...

    def commit(self, receipts: Sequence[Receipt], batch: BatchName) -> None:
        """In the driver, when all tasks are done; may be called again for the same batch."""
        ...

    def abort(self, receipts: Sequence[Receipt], batch: BatchName) -> None:
        """In the driver, when a task or the commit failed; never undoes a commit."""
        ...


@dataclass(frozen=True, slots=True)
class AtLeastOnce:
    """Every record is acknowledged before its task ends; a second try sends it a second time."""

    settings: Mapping[str, str]

    def open(self, task: TaskName) -> TaskDelivery:
        return _Acknowledged(self.settings, task)

    def commit(self, receipts: Sequence[Receipt], batch: BatchName) -> None:
        """All of it counts already."""

    def abort(self, receipts: Sequence[Receipt], batch: BatchName) -> None:
        """What was acknowledged stays; the next try repeats it."""


class _Acknowledged:
    """A producer that is opened with the first record: a task without rows costs nothing."""

    def __init__(self, settings: Mapping[str, str], task: TaskName) -> None:
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

    def finish(self) -> Receipt:
        sender, self._sender = self._sender, None
        if sender is None:
            return Receipt(self._task, 0)
        with _one_line():
            records = sender.finish() - self._records_before
        keep_sender(self._settings, sender)
        return Receipt(self._task, records)

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


def delivery_for(options: SinkOptions) -> TopicDelivery:
    """What the option `delivery` asks for; PipelineError if the broker cannot do it."""
    if options.delivery == EXACTLY_ONCE and not has_batch_commit(options.settings):
        raise PipelineError(
            f"option delivery: the broker at {options.settings['bootstrap.servers']} has no batch commit,"
            " which exactly-once needs; use at-least-once and drop repeats by a natural key"
        )
    return AtLeastOnce(options.settings)


def has_batch_commit(settings: Mapping[str, str]) -> bool:
    """Whether the broker announces batch commit, and we know how to ask for it."""
    if not any(api.name == BATCH_COMMIT_API for api in APIS.values()):
        return False
    connection = connect(kafka_endpoint(settings))
    try:
        return any(APIS[key].name == BATCH_COMMIT_API for key in connection.versions)
    finally:
        connection.close()
