"""Spark's side of writing: the writers for a batch job and for a streaming query."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.lake.commit import commit_files, discard_files
from penstock.spark.lake.table import (
    WRITE_OPTIONS,
    RunningQuery,
    TableOptions,
    check_names,
    resolve,
    running_query,
    running_task,
    table_options,
)
from penstock.spark.lake.task_files import TaskFiles, WrittenFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Messages = Sequence[WriterCommitMessage | None]


@dataclass(frozen=True)
class LakeCommitMessage(WriterCommitMessage):
    """What one task wrote, and for which query and batch."""

    written: WrittenFiles
    query: RunningQuery | None


def asked_table_to_write(options: Mapping[str, str], schema: "StructType") -> TableOptions:
    """The table that a query writes to, rejecting at once rows that could never fit."""
    check_names(options, WRITE_OPTIONS)
    return resolve(table_options(options), spark_to_arrow(schema))


def spark_to_arrow(schema: "StructType") -> "pa.Schema":
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def write_task(
    table: TableOptions, schema: "StructType", rows: Iterator["pa.RecordBatch"], query: RunningQuery | None
) -> LakeCommitMessage:
    """Write the rows of a task; where that fails, leave no files behind."""
    files = TaskFiles(table, spark_to_arrow(schema), running_task(), query and query.query_id)
    try:
        for batch in rows:
            files.write(batch)
        return LakeCommitMessage(files.finish(), query)
    except BaseException:
        files.discard()
        raise


def _written(messages: Messages) -> list[WrittenFiles]:
    return [message.written for message in messages if isinstance(message, LakeCommitMessage)]


def _query_id(messages: Messages) -> str | None:
    queries = (message.query for message in messages if isinstance(message, LakeCommitMessage))
    return next((query.query_id for query in queries if query is not None), None)


class LakeWriter(DataSourceArrowWriter):
    """A batch job that appends to a table, or overwrites it.

    It works for no query, even where one runs it (`foreachBatch`): it may be the second job of a batch,
    and what the first one wrote is no repeat of its rows.
    """

    def __init__(self, table: TableOptions, schema: "StructType", overwrite: bool) -> None:
        self._table, self._schema, self._overwrite = table, schema, overwrite

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        return write_task(self._table, self._schema, iterator, None)

    def commit(self, messages: Messages) -> None:
        commit_files(self._table, spark_to_arrow(self._schema), _written(messages), overwrite=self._overwrite)

    def abort(self, messages: Messages) -> None:
        discard_files(self._table, _written(messages))


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query that appends each batch to a table once."""

    def __init__(self, table: TableOptions, schema: "StructType", overwrite: bool) -> None:
        self._table, self._schema, self._overwrite = table, schema, overwrite

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        return write_task(self._table, self._schema, iterator, running_query())

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        commit_files(
            self._table,
            spark_to_arrow(self._schema),
            _written(messages),
            query_id=_query_id(messages),
            batch_id=batchId,
            overwrite=self._overwrite,
        )

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        discard_files(self._table, _written(messages), query_id=_query_id(messages), batch_id=batchId)
