"""Judging a producer's batch, and appending it.

The order of the checks is the order of their cost: what the header says, the CRC, the
producer's sequence. Records are walked only where the topic asks for it (compacted, deep
validation, another codec, or its own timestamps).
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.metadata.configs import TimestampType, TopicOptions
from penstock.core.model import CorruptionError, Offset, Refused, StorageError, Why
from penstock.core.records import (
    BatchHeader,
    InvalidRecord,
    UnsupportedMagic,
    check_batch,
    stamp_log_append_time,
)
from penstock.core.replica import Duplicate, Rejected
from penstock.runtime import Clock
from penstock.services.partitions import Partition, Partitions, PartitionStopped
from penstock.services.records.metrics import ProduceMetrics
from penstock.services.records.rewriting import keyless, rewritten
from penstock.storage.log import BatchTooLarge

NO_TIMESTAMP = -1


class Placed(NamedTuple):
    """A batch that is in the log: acknowledged once the high watermark has reached `end`."""

    first_offset: Offset
    end: Offset
    log_append_time: int = NO_TIMESTAMP


class Producing:
    """Appends for producers of every door."""

    def __init__(self, partitions: Partitions, clock: Clock, metrics: ProduceMetrics) -> None:
        self._partitions = partitions
        self._clock = clock
        self._metrics = metrics

    def append(self, partition: Partition, records: memoryview) -> Placed | Refused:
        """Append one batch, as clients of the Kafka protocol send it.

        `records` must be writable: offsets are stamped into it. It is not kept.
        """
        outcome = self._append(partition, records)
        if isinstance(outcome, Refused):
            self._metrics.refused(partition.name.topic, outcome.why)
        return outcome

    def acknowledged(self, topics: Sequence[str], began_ns: int) -> None:
        """Batches for these topics, which came in together, are as durable as was asked."""
        elapsed_ns = self._clock.now() - began_ns
        for topic in topics:
            self._metrics.acknowledged(topic, elapsed_ns)

    def _append(self, partition: Partition, records: memoryview) -> Placed | Refused:
        if partition.stopped is not None:
            # Before the options, which a deleted topic has none of, and before a retry is called
            # a duplicate: what it repeats may never have reached the device.
            return Refused(Why.NOT_LEADER, str(partition.stopped))
        options = self._partitions.options(partition.name.topic)
        try:
            header = check_batch(records)
            refused = _judge_header(header, records, options) or self._judge_time(header, options)
            if refused is not None:
                return refused
            verdict = partition.log.producers.check(header)
            if isinstance(verdict, Duplicate):
                return _placed_before(verdict, options)
            if isinstance(verdict, Rejected):
                return Refused(verdict.why)
            return self._place(partition, records, header, options)
        except UnsupportedMagic as error:
            return Refused(Why.UNSUPPORTED_FORMAT, str(error))
        except InvalidRecord as error:
            return Refused(Why.INVALID_RECORD, str(error), (error.index,))
        except CorruptionError as error:
            return Refused(Why.CORRUPT_BATCH, str(error))

    def _place(
        self, partition: Partition, records: memoryview, header: BatchHeader, options: TopicOptions
    ) -> Placed | Refused:
        now = self._clock.wall()
        append_time = NO_TIMESTAMP
        if options.compacted and (missing := keyless(records)):
            return Refused(Why.INVALID_RECORD, "a compacted topic takes no record without a key", missing)
        if options.compacted or options.deep_validation or options.compression is not None:
            records = rewritten(records, header, options)
            header = check_batch(records)
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
