"""Tables: rows in and out of a Delta table, exactly once, through delta-rs.

    table          options, storage, schemas and partitions; a table opened or created; its errors
    task_files     the parquet files that one task writes
    commit         all files of a batch into the table, once
    origins        which offsets of which topics the rows are
    delta_log      what each version added and removed
    sink, source   what Spark calls to write and to read
    maintenance    compaction and vacuum
    iceberg        Iceberg tables as sinks

      task 0 ──> part-00000-….parquet ─┐
      task 1 ──> part-00001-….parquet ─┼──> driver ──> version n+1: files, (query, batch), ends of origins
      task 1 ──> part-00001-….parquet  ┊    (an attempt that died: no version ever names its file)

What a task writes is in the table's directory, and not in the table, until the driver's one commit
names it. The commit carries the query's id and the batch's number, and a table takes each pair once:
after a crash Spark runs the last batch again, the files are written again under other names, and
either this commit or the one before the crash counts. `origins` explains what happens when the
query's id itself is lost.

Left out: changes of single rows. Rows are appended, or a table is overwritten as a whole.
"""

from penstock.spark.lake.commit import commit_files, discard_files
from penstock.spark.lake.maintenance import CompactReport, VacuumReport, compact, vacuum
from penstock.spark.lake.origins import refuse_other_queries
from penstock.spark.lake.table import (
    OriginColumns,
    RunningQuery,
    TableOptions,
    ensure_table,
    resolve,
    running_query,
    table_options,
)
from penstock.spark.lake.task_files import CommitResult, TaskFiles, WrittenFiles

__all__ = [
    "TableOptions",
    "OriginColumns",
    "table_options",
    "ensure_table",
    "resolve",
    "TaskFiles",
    "WrittenFiles",
    "commit_files",
    "discard_files",
    "refuse_other_queries",
    "CommitResult",
    "RunningQuery",
    "running_query",
    "compact",
    "CompactReport",
    "vacuum",
    "VacuumReport",
]
