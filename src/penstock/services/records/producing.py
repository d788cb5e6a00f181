"""Judging a producer's batch, and appending it.

The order of the checks is the order of their cost: what the header says, the CRC, the
producer's sequence. Records are walked only where the topic asks for it (compacted, deep
validation, another codec, or its own timestamps); of large batches, by a worker.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from penstock.core.metadata.configs import TimestampType, TopicOptions
from penstock.core.model import CorruptionError, Offset, Refused, StorageError, Why
from penstock.core.records import (
    BatchHeader,
    UnsupportedMagic,
    check_batch,
    stamp_log_append_time,
)
from penstock.core.replica import Duplicate
from penstock.observability import log as events
from penstock.runtime import Clock, Spawn
from penstock.services.partitions import Partition, Partitions, PartitionStopped
from penstock.services.records.metrics import ProduceMetrics
from penstock.services.records.rewriting import finish_batch
from penstock.services.records.workshop import Finished, Workshop, is_large, walks_records
from penstock.storage.log import BatchTooLarge

NO_TIMESTAMP = -1


class Placed(NamedTuple):
    """A batch that is in the log: acknowledged once the high watermark has reached `end`."""

    first_offset: Offset
    end: Offset
    log_append_time: int = NO_TIMESTAMP


class Pending:
    """A batch that takes a while. Whoever gets this says who hears of the outcome, before anything else."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: Callable[[Placed | Refused], None] = _nobody_cares


class Producing:
    """Appends for producers of every door."""

    def __init__(self, partitions: Partitions, clock: Clock, metrics: ProduceMetrics, spawn: Spawn) -> None:
        self._partitions = partitions
        self._clock = clock
        self._metrics = metrics
        self._workshop = Workshop(spawn)

    def append(
        self, partition: Partition, records: memoryview, *, on_all: bool = False
    ) -> Placed | Refused | Pending:
        """Append one batch, as clients of the Kafka protocol send it.

        `records` must be writable: offsets are stamped into it. It is not kept. One that shall
        be on all replicas before it counts (`on_all`) is refused while too few are in sync.
        """
        if self._workshop.is_busy(partition):
            return self._wait(partition, bytearray(records), on_all=on_all)
        outcome = self._append(partition, records, on_all=on_all)
        if isinstance(outcome, Refused):
            self._metrics.refused(partition.name.topic, outcome.why)
        return outcome

    def _wait(self, partition: Partition, records: bytearray, *, on_all: bool) -> Pending:
        """An earlier batch is with a worker."""
        pending = Pending()

        def turn() -> bool:
            outcome = self._append(partition, memoryview(records), on_all=on_all)
            if isinstance(outcome, Pending):
                outcome.done = pending.done
                return True
            self._settle(partition, pending, outcome)
            return False

        self._workshop.wait(partition, turn)
        return pending

    def _settle(self, partition: Partition, pending: Pending, outcome: Placed | Refused) -> None:
        if isinstance(outcome, Refused):
            self._metrics.refused(partition.name.topic, outcome.why)
        pending.done(outcome)

    def acknowledged(self, topics: Sequence[str], began_ns: int) -> None:
        """Batches for these topics, which came in together, are as durable as was asked."""
        elapsed_ns = self._clock.now() - began_ns
        for topic in topics:
            self._metrics.acknowledged(topic, elapsed_ns)

    def _append(
        self, partition: Partition, records: memoryview, *, on_all: bool
    ) -> Placed | Refused | Pending:
        # Before the options, which a deleted topic has none of, and before a retry is called
        # a duplicate: what it repeats may never have reached the device.
        if partition.stopped is not None or (on_all and not partition.has_minimum):
            return _cannot_take(partition)
        options = self._partitions.options(partition.name.topic)
        try:
            header = check_batch(records)
            refused = _judge_header(header, records, options) or self._judge_time(header, options)
            if refused is not None:
                return refused
            verdict = partition.log.producers.check(header)
            if isinstance(verdict, Duplicate):
                return _placed_before(verdict, options)
            if isinstance(verdict, Refused):
                return _rejected(partition, verdict)
            if walks_records(options):
                return self._look_into(partition, records, header, options)
            return self._place(partition, records, header, options)
        except UnsupportedMagic as error:
            return Refused(Why.UNSUPPORTED_FORMAT, str(error))
        except CorruptionError as error:
            return Refused(Why.CORRUPT_BATCH, str(error))

    def _look_into(
        self, partition: Partition, records: memoryview, header: BatchHeader, options: TopicOptions
    ) -> Placed | Refused | Pending:
        if is_large(header):
            return self._send(partition, bytes(records), options)
        finished = finish_batch(
            records, options.compression, options.compression_level, keyed=options.compacted
        )
        return self._place_finished(partition, records, finished, options)

    def _send(self, partition: Partition, batch: bytes, options: TopicOptions) -> Pending:
        """Have a worker look at the records, and compress them anew."""
        pending = Pending()

        def done(finished: Finished) -> None:
            outcome: Placed | Refused
            if partition.stopped is not None:
                outcome = partition.stopped
            else:
                outcome = self._place_finished(partition, memoryview(bytearray(batch)), finished, options)
            self._settle(partition, pending, outcome)

        def failed(error: Exception) -> None:
            # Perhaps it is this batch that kills workers: it must not be given to the loop.
            events.warning("produce.worker_failed", partition=str(partition.name), error=error)
            self._settle(partition, pending, Refused(Why.STORAGE_FAILED, f"no worker: {error}"))

        work = partial(
            finish_batch, batch, options.compression, options.compression_level, keyed=options.compacted
        )
        self._workshop.send(partition, work, done, failed)
        return pending

    def _place_finished(
        self, partition: Partition, records: memoryview, finished: Finished, options: TopicOptions
    ) -> Placed | Refused:
        if isinstance(finished, Refused):
            return finished
        if finished is not None:
            records = memoryview(bytearray(finished))
        return self._place(partition, records, check_batch(records), options)

    def _place(
        self, partition: Partition, records: memoryview, header: BatchHeader, options: TopicOptions
    ) -> Placed | Refused:
        now = self._clock.wall()
        append_time = NO_TIMESTAMP
        if options.timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_log_append_time(records, 0, now)
            header = check_batch(records)
            append_time = now
        try:
            appended = partition.append(records, (header,), now)
        except PartitionStopped as error:
            return Refused(Why.NOT_LEADER, str(error))
        except BatchTooLarge as error:
            return Refused(Why.BATCH_TOO_LARGE, str(error))
        except StorageError as error:
            return Refused(Why.STORAGE_FAILED, str(error))
        placed = Placed(appended.first_offset, Offset(appended.last_offset + 1), append_time)
        self._metrics.produced(partition.name.topic, placed.end - placed.first_offset, len(records))
        return placed

    def _judge_time(self, header: BatchHeader, options: TopicOptions) -> Refused | None:
        """Kafka compares every record's time; the header's extremes say the same for honest batches."""
        if options.timestamp_type is TimestampType.LOG_APPEND_TIME or header.max_timestamp < 0:
            return None
        now = self._clock.wall()
        if header.max_timestamp - now > options.timestamp_after_max_ms:
            return Refused(
                Why.INVALID_TIMESTAMP,
                f"timestamp {header.max_timestamp} is more than {options.timestamp_after_max_ms} ms ahead",
            )
        if now - header.base_timestamp > options.timestamp_before_max_ms:
            return Refused(
                Why.INVALID_TIMESTAMP,
                f"timestamp {header.base_timestamp} is more than {options.timestamp_before_max_ms} ms old",
            )
        return None


def _nobody_cares(_: Placed | Refused) -> None:
    """The caller has not said yet who wants to know."""


def _cannot_take(partition: Partition) -> Refused:
    if partition.stopped is not None:
        return partition.stopped
    state = partition.insync.assignment
    return Refused(
        Why.NOT_ENOUGH_REPLICAS,
        f"{len(state.isr)} of {len(state.replicas)} replicas are in sync, {state.minimum} are needed",
    )


def _rejected(partition: Partition, verdict: Refused) -> Refused:
    if verdict.why is Why.OUT_OF_ORDER_SEQUENCE and not partition.has_room:
        # What it follows was not written: its sender must not think that records were lost.
        return Refused(Why.STORAGE_FAILED, "the batch before it found no room on the disk")
    return verdict


def _placed_before(seen: Duplicate, options: TopicOptions) -> Placed:
    """The answer that the first copy of a batch was given, or is still waiting for."""
    by_broker = options.timestamp_type is TimestampType.LOG_APPEND_TIME
    return Placed(
        seen.first_offset, Offset(seen.last_offset + 1), seen.timestamp if by_broker else NO_TIMESTAMP
    )


def _judge_header(header: BatchHeader, records: memoryview, options: TopicOptions) -> Refused | None:
    size = header.size_bytes
    if size != len(records):
        return Refused(Why.INVALID_RECORD, "a partition takes exactly one batch per request")
    if size > options.max_message_bytes:
        return Refused(
            Why.BATCH_TOO_LARGE,
            f"the batch has {size} bytes, the topic's max.message.bytes is {options.max_message_bytes}",
        )
    if header.is_control:
        return Refused(Why.INVALID_RECORD, "clients do not write control batches")
    if header.is_transactional:
        return Refused(Why.INVALID_TRANSACTION, "transactions are not available yet")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return Refused(Why.INVALID_RECORD, "an idempotent batch carries an epoch and a sequence")
    return None
