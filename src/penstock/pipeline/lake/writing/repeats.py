"""Rows that another query has brought before: left out where the user says `onOverlap=skip`, or refused."""

from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import RowsAlreadyThere
from penstock.pipeline.lake.options import OriginColumns, TableOptions
from penstock.pipeline.lake.tables import open_table
from penstock.pipeline.lake.writing.origins import OriginRanges, Recorded, claimed_end

if TYPE_CHECKING:
    import pyarrow as pa


class Repeats:
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


def find_repeats(table: TableOptions, columns: OriginColumns | None, query_id: str | None) -> Repeats:
    """What to leave out of a task's rows."""
    if table.on_overlap != "skip" or query_id is None or columns is None:
        return Repeats(None, _nothing, "")
    return Repeats(columns, _recorded(table), query_id)


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
        from penstock.pipeline.lake.iceberg import recorded_by_iceberg

        return recorded_by_iceberg(table)
    opened = open_table(table)
    return _nothing if opened is None else opened.transaction_version


def _nothing(_: str) -> None:
    return None
