"""Where in a topic rows came from, so that a table knows what it has from whom.

Spark names a query by an id that lives in its checkpoint. Whoever loses the checkpoint starts a new
query, which reads the topic again, and the table's memory of (query, batch) does not help: the id is
new. So a commit also records, per topic and partition, up to which offset the table has rows (`ends`),
and, where a query brings rows of a partition for the first time, the end that it found there (its
`claim`). What lies below its claim was put there by somebody else:

    offsets   0 ........... 5,000 ................... 7,500
    query A   ############### end = 5,000
    query B                   claim = 5,000, and may bring what is at or above it
    query B'  ########  claim = 5,000 and starts at 0: refused, skipped or allowed, as the user says

Both are kept as application transactions of the table, which Delta carries from checkpoint to
checkpoint for as long as the table lives, while commit infos vanish with the log's old entries.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake.table import (
    ORIGIN_DEFAULTS,
    OriginColumns,
    RowsAlreadyThere,
    TableOptions,
    open_table,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Application id -> the version that the table has for it.
Recorded = Callable[[str], int | None]


class OriginRange(NamedTuple):
    """The rows of one partition of a topic: from offset `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


def origin_columns(table: TableOptions, schema: "pa.Schema") -> OriginColumns | None:
    """The columns of these rows that say where they came from, or None if they have none."""
    if table.origin_columns is None:
        return next((columns for columns in ORIGIN_DEFAULTS if _fits(columns, schema)), None)
    if table.origin_columns == ():
        return None
    columns = OriginColumns(*table.origin_columns)
    if not _fits(columns, schema):
        raise SparkOptionError(
            "originColumns", f"the rows have no columns {', '.join(columns)} of string, integer and integer"
        )
    return columns


def _fits(columns: OriginColumns, schema: "pa.Schema") -> bool:
    from pyarrow import types

    if not all(name in schema.names for name in columns):
        return False
    topic, partition, offset = (schema.field(name).type for name in columns)
    return bool(types.is_string(topic) and types.is_integer(partition) and types.is_integer(offset))


class OriginRanges:
    """The ranges that rows cover, gathered batch by batch."""

    def __init__(self, columns: OriginColumns | None) -> None:
        self._columns = columns
        self._ranges: dict[tuple[str, int], tuple[int, int]] = {}

    def note(self, batch: "pa.RecordBatch") -> None:
        if self._columns is None:
            return
        import pyarrow as pa

        topic, partition, offset = self._columns
        rows = pa.table(batch.select([topic, partition, offset])).drop_null()
        found = rows.group_by([topic, partition]).aggregate([(offset, "min"), (offset, "max")])
        for row in found.to_pylist():
            self._add(OriginRange(row[topic], row[partition], row[f"{offset}_min"], row[f"{offset}_max"] + 1))

    def _add(self, origin: OriginRange) -> None:
        start, end = self._ranges.get(origin[:2], (origin.start, origin.end))
        self._ranges[origin[:2]] = (min(start, origin.start), max(end, origin.end))

    def found(self) -> tuple[OriginRange, ...]:
        return tuple(OriginRange(*key, *self._ranges[key]) for key in sorted(self._ranges))


def merged(parts: Iterable[Sequence[OriginRange]]) -> tuple[OriginRange, ...]:
    """The ranges of several tasks as one range per partition."""
    ranges = OriginRanges(None)
    for part in parts:
        for origin in part:
            ranges._add(origin)
    return ranges.found()


def end_id(topic: str, partition: int) -> str:
    """Under which application id a table records its end of a partition."""
    return f"penstock/{topic}/{partition}"


def claim_id(query_id: str, topic: str, partition: int) -> str:
    """Under which application id a table records what it had when a query first came."""
    return f"penstock/{query_id}/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class CommitOrigins:
    """What a commit writes down about origins, by application id."""

    ends: Mapping[str, int]
    claims: Mapping[str, int]


def claimed_end(recorded: Recorded, query_id: str, topic: str, partition: int) -> int:
    """Below which offset the table's rows are not this query's."""
    claim = recorded(claim_id(query_id, topic, partition))
    if claim is not None:
        return claim
    return recorded(end_id(topic, partition)) or 0


def record_origins(
    table: TableOptions, recorded: Recorded, query_id: str, origins: Sequence[OriginRange]
) -> CommitOrigins:
    """What to record for these rows; RowsAlreadyThere if others have brought them before."""
    claims: dict[str, int] = {}
    for origin in origins:
        topic, partition = origin.topic, origin.partition
        claim = claimed_end(recorded, query_id, topic, partition)
        if origin.start < claim and table.on_overlap != "allow":
            raise _already_there(table, origin, claim)
        if recorded(claim_id(query_id, topic, partition)) is None:
            claims[claim_id(query_id, topic, partition)] = claim
    return CommitOrigins(record_ends(recorded, origins).ends, claims)


def record_ends(recorded: Recorded, origins: Sequence[OriginRange]) -> CommitOrigins:
    """The ends alone, for rows that come from a batch job: nobody will come again under its name."""
    ends = {end_id(origin.topic, origin.partition): origin.end for origin in origins}
    return CommitOrigins({name: end for name, end in ends.items() if end > (recorded(name) or 0)}, {})


def _already_there(table: TableOptions, origin: OriginRange, claim: int) -> RowsAlreadyThere:
    place = f"{origin.topic}/{origin.partition}"
    return RowsAlreadyThere(
        f"table {table.path}: it has {place} up to offset {claim - 1} from another query, and this query"
        f" brings offsets from {origin.start} on, so rows would be there twice (was a checkpoint lost?)",
        f"go on with the old checkpoint, start at offset {claim},"
        " or set onOverlap to skip (leave out what is there) or allow (write it again)",
    )


class DuplicateFilter:
    """What a table had of each partition when this query first came; nothing, where nobody asks."""

    def __init__(self, columns: OriginColumns | None, recorded: Recorded, query_id: str) -> None:
        self._columns, self._recorded, self._query_id = columns, recorded, query_id
        self._claims: dict[tuple[str, int], int] = {}

    def without(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The rows that are not there yet."""
        import pyarrow.compute as pc

        if self._columns is None:
            return batch
        ranges = OriginRanges(self._columns)
        ranges.note(batch)
        for topic, partition, start, _ in ranges.found():
            claim = self._claim(topic, partition)
            if start < claim:
                there = pc.and_(
                    pc.equal(batch.column(self._columns.topic), topic),
                    pc.equal(batch.column(self._columns.partition), partition),
                )
                there = pc.and_(there, pc.less(batch.column(self._columns.offset), claim))
                # A row without an origin is nobody's repeat.
                batch = batch.filter(pc.invert(pc.fill_null(there, False)))
        return batch

    def _claim(self, topic: str, partition: int) -> int:
        key = (topic, partition)
        if key not in self._claims:
            self._claims[key] = claimed_end(self._recorded, self._query_id, topic, partition)
        return self._claims[key]


def find_repeats(table: TableOptions, columns: OriginColumns | None, query_id: str | None) -> DuplicateFilter:
    """What to leave out of a task's rows."""
    if table.on_overlap != "skip" or query_id is None or columns is None:
        return DuplicateFilter(None, _nothing, "")
    return DuplicateFilter(columns, _recorded(table), query_id)


def refuse_other_queries(table: TableOptions, query_id: str | None) -> None:
    """Raise RowsAlreadyThere if the table has rows, and this query has brought none of them.

    For rows that are computed and have no origin to compare: a query that lost its checkpoint would
    compute all of them again.
    """
    opened = open_table(table)
    if opened is None or query_id is None or opened.transaction_version(query_id) is not None:
        return
    if opened.file_uris():
        raise RowsAlreadyThere(
            f"table {table.path}: it has rows of another query, and those of this one would be there twice"
            " (was a checkpoint lost?)",
            "go on with the old checkpoint, or write to another table",
        )


def _recorded(table: TableOptions) -> Recorded:
    if table.table_format == "iceberg":
        from penstock.spark.lake.iceberg import recorded_by_iceberg

        return recorded_by_iceberg(table)
    opened = open_table(table)
    return _nothing if opened is None else opened.transaction_version


def _nothing(_: str) -> None:
    return None
