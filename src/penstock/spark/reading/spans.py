"""What a task reads (a span of offsets), how, and the shape of what it gets."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from penstock.spark.errors import DataLost, SparkOptionError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 131_072
TIMEOUT_MS = 120_000
MIB = 1 << 20
_ISOLATION = {"read_uncommitted": False, "read_committed": True}
# Putting batches together copies them, and what each batch costs on its way to Spark is no longer
# felt at a quarter of the largest size: from there on a batch is handed on as it is.
_ENOUGH = 4


class OffsetRange(NamedTuple):
    """Offsets `start` up to but not including `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class OffsetRangeReader(Protocol):
    """Reads spans, one after the other."""

    def read(self, span: OffsetRange) -> Iterator["pa.RecordBatch"]:
        """Every record of the span, in order; ends when `span.end` is reached.

        Raises `DataLost` where the log no longer holds a part of the span, and `PipelineError`
        where the broker returns an error, stays away for too long, or sends what is no record batch.
        """

    def close(self) -> None:
        """Close the connections."""


def record_schema(include_headers: bool) -> "pa.Schema":
    """The columns of the official connector, as Spark expects them from a Python source.

    Spark compares names, order and types with its own: even the name of a list's element counts.
    """
    import pyarrow as pa

    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    if include_headers:
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        fields.append(("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """How to read."""

    include_headers: bool = False
    rows_max: int = ROWS_MAX
    # An Arrow batch of this size is handed on, whatever its rows.
    batch_bytes_max: int = 32 * MIB
    committed_only: bool = True
    # Large responses keep both sides busy: while one is decoded, the next is on its way.
    fetch_bytes_max: int = 8 * MIB
    wait_ms: int = 500
    request_ms: int = 30_000
    # How long a broker may stay away, or a log stand still, before a read gives up.
    timeout_ms: int = TIMEOUT_MS
    client_id: str = "penstock-pipeline"


_DEFAULTS = ReaderOptions()


def reader_options(
    settings: Mapping[str, str], *, include_headers: bool, rows_max: int, timeout_ms: int
) -> ReaderOptions:
    """What `settings` (librdkafka's names) amount to; raises SparkOptionError for what they cannot be."""
    if rows_max < 1:
        raise SparkOptionError("rows_max", f"{rows_max} is not a positive number of rows")
    fetch_bytes = _number(settings, "fetch.max.bytes", _DEFAULTS.fetch_bytes_max)
    partition_bytes = _number(settings, "max.partition.fetch.bytes", fetch_bytes)
    return ReaderOptions(
        include_headers=include_headers,
        rows_max=rows_max,
        committed_only=_committed_only(settings),
        fetch_bytes_max=min(fetch_bytes, partition_bytes),
        wait_ms=_number(settings, "fetch.wait.max.ms", _DEFAULTS.wait_ms),
        request_ms=_number(settings, "socket.timeout.ms", _DEFAULTS.request_ms),
        timeout_ms=timeout_ms,
        client_id=settings.get("client.id", _DEFAULTS.client_id),
    )


def _committed_only(settings: Mapping[str, str]) -> bool:
    level = settings.get("isolation.level", "read_committed")
    if level.lower() not in _ISOLATION:
        raise SparkOptionError(
            "kafka.isolation.level", f"{level!r} is neither read_committed nor read_uncommitted"
        )
    return _ISOLATION[level.lower()]


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or not 0 < int(text) < 1 << 31:
        raise SparkOptionError(f"kafka.{name}", f"{text!r} is not a positive number")
    return int(text)


def rebatch(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most `rows_max` rows, and not many small ones."""
    rows_enough, bytes_enough = max(1, rows_max // _ENOUGH), bytes_max // _ENOUGH
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            if batch.num_rows >= rows_enough or batch.nbytes >= bytes_enough:
                yield from _together(waiting)
                waiting, rows, size = [], 0, 0
                for start in range(0, batch.num_rows, rows_max):
                    yield batch.slice(start, rows_max)
                continue
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= rows_enough or size >= bytes_enough:
                yield from _together(waiting)
                waiting, rows, size = [], 0, 0
    except DataLost:
        # Somebody may go on behind what is lost; what came before it is not.
        yield from _together(waiting)
        raise
    yield from _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) == 1:
        yield from (batch for batch in batches if batch.num_rows)
    elif batches:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
