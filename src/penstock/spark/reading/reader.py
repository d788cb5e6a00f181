"""The two readers of spans, and which of them serves which settings."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.client import ClientError, Endpoint
from penstock.client.connection import security_of
from penstock.client.connection_security import ConnectionSecurity
from penstock.client.consumer import PartitionConsumer, PollResult
from penstock.client.visible_batches import shown_batches
from penstock.core.records import CorruptBatch
from penstock.spark.errors import PipelineError
from penstock.spark.reading.decoder import arrow_batches, row_batch
from penstock.spark.reading.fetcher import BrokerDirectory, FetchedBatches, OffsetRangeFetcher, RetryPolicy
from penstock.spark.reading.spans import (
    ROWS_MAX,
    TIMEOUT_MS,
    OffsetRange,
    OffsetRangeReader,
    ReaderOptions,
    reader_options,
    rebatch,
    record_schema,
)

TURN_SECONDS = 0.2
# Python objects are large; so many of them are turned into Arrow at a time.
TURN_RECORDS = 10_000
ANSWERS_AHEAD = 4
_GONE = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})
_MISSING = frozenset({
    "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_TOPIC_ID",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
})  # fmt: skip
_FINAL = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "_BAD_MSG"})


def open_reader(
    settings: Mapping[str, str],
    *,
    include_headers: bool = False,
    rows_max: int = ROWS_MAX,
    timeout_ms: int = TIMEOUT_MS,
) -> OffsetRangeReader:
    """A reader for these settings (librdkafka's names); it connects when it is first used.

    Connections of ours are read by our own reader; logins that they do not have are left to librdkafka.
    """
    options = reader_options(
        settings, include_headers=include_headers, rows_max=rows_max, timeout_ms=timeout_ms
    )
    bootstrap = settings["bootstrap.servers"]
    endpoint = Endpoint(bootstrap, {name: settings[name] for name in settings if name != "bootstrap.servers"})
    if endpoint.needs_librdkafka:
        return LibrdkafkaReader(settings, options)
    try:
        return SocketReader(bootstrap, options, security_of(endpoint))
    except ClientError as error:
        raise PipelineError(str(error)) from None


class LibrdkafkaReader:
    """For logins that our own reader does not have, such as OAUTHBEARER."""

    def __init__(self, settings: Mapping[str, str], options: ReaderOptions) -> None:
        own = ("bootstrap.servers", "isolation.level")
        rest = {
            # librdkafka reads ahead as far as it may; a task needs no more than the next responses.
            "max.partition.fetch.bytes": str(options.fetch_bytes_max),
            "queued.max.messages.kbytes": str(max(1, options.fetch_bytes_max * ANSWERS_AHEAD >> 10)),
            **{name: value for name, value in settings.items() if name not in own},
        }
        try:
            self._consumer = PartitionConsumer(
                Endpoint(settings["bootstrap.servers"], rest), committed_only=options.committed_only
            )
        except ClientError as error:
            raise PipelineError(str(error)) from None
        self._options = options

    def close(self) -> None:
        self._consumer.close()

    def read(self, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        if span.start >= span.end:
            return
        self._consumer.assign(*span[:3])
        try:
            yield from _SpanRead(self._consumer, span, self._options).batches()
        except ClientError as error:
            raise PipelineError(f"{span}: {error}") from None
        finally:
            self._consumer.unassign()


class _SpanRead:
    """One span, while it is read."""

    def __init__(self, consumer: PartitionConsumer, span: OffsetRange, options: ReaderOptions) -> None:
        self._consumer = consumer
        self._span = span
        self._schema = record_schema(options.include_headers)
        self._turn_records = min(options.rows_max, TURN_RECORDS)
        self._trouble = RetryPolicy(span, options.timeout_ms)
        self._position = span.start
        self._at_the_end = False
        self._missing = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._position < self._span.end:
            wanted = min(self._turn_records, self._span.end - self._position)
            came = self._consumer.next(wanted, TURN_SECONDS)
            rows = [row for row in came.rows if self._position <= row.offset < self._span.end]
            if came.rows:
                self._position = max(self._position, came.rows[-1].offset + 1)
                self._at_the_end = self._missing = False
                self._trouble.passed()
            if rows:
                yield row_batch(rows, self._span, self._schema)
            self._look_at(came)

    def _look_at(self, came: PollResult) -> None:
        if self._position >= self._span.end:
            return
        if came.refusal is not None:
            self._refused(came.refusal)
        elif came.log_end is not None:
            self._at_the_end, self._missing = True, False
            if came.log_end >= self._span.end:
                self._position = self._span.end
        elif not came.rows and self._missing:
            self._trouble.short(self._position)
        elif not came.rows and self._at_the_end:
            self._stands_still()
        elif not came.rows:
            self._trouble.away(self._position, self._consumer.unreachable or "nothing came")

    def _refused(self, name: str) -> None:
        if name in _FINAL:
            raise PipelineError(f"{self._span}: reading at offset {self._position} failed: {name}")
        if name in _GONE:
            self._find_out_what_is_lost()
        elif name in _MISSING:
            # Said once; until something comes, it stands.
            self._missing = True
            self._trouble.short(self._position)
        else:
            self._trouble.away(self._position, name)
        self._consumer.assign(self._span.topic, self._span.partition, self._position)

    def _find_out_what_is_lost(self) -> None:
        marks = self._consumer.watermarks(self._span.topic, self._span.partition)
        if marks is None:
            self._trouble.away(self._position, self._consumer.unreachable or "nobody knows the log's ends")
        elif self._position < marks[0]:
            raise self._trouble.lost(self._position, marks[0])
        elif self._position > marks[1]:
            self._trouble.short(self._position)

    def _stands_still(self) -> None:
        """The log, as far as it may be read, ended before the span did."""
        marks = self._consumer.watermarks(self._span.topic, self._span.partition)
        if marks is not None and marks[1] < self._span.end:
            self._trouble.short(self._position)
        else:
            self._trouble.away(self._position, self._consumer.unreachable or "a transaction is open")


class SocketReader:
    """Sockets of ours, our own codec, Arrow out of the bytes as they came."""

    def __init__(
        self, bootstrap: str, options: ReaderOptions, security: ConnectionSecurity | None = None
    ) -> None:
        self._cluster = BrokerDirectory(bootstrap, options, security)
        self._options = options

    def close(self) -> None:
        self._cluster.close()

    def read(self, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        answers = OffsetRangeFetcher(self._cluster, span, self._options).answers()
        decoded = (batch for fetched in answers for batch in self._decoded(fetched, span))
        return rebatch(decoded, self._options.rows_max, self._options.batch_bytes_max)

    def _decoded(self, fetched: FetchedBatches, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        aborted = fetched.aborted if self._options.committed_only else ()
        try:
            shown = shown_batches(fetched.records, fetched.headers, aborted, span.end)
            yield from arrow_batches(shown, span, self._options.include_headers)
        except CorruptBatch as broken:
            raise PipelineError(f"{span}: broken records: {broken}") from None
