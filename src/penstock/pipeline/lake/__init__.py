"""Tables: rows in and out of a Delta table, exactly once, through delta-rs.

    options       what a user says about a table
    tables        a table opened, created, asked for its shape
    storage       a directory or an object store
    schemas       the rows' columns and the table's
    partitions    rows by partition, and partition values as text
    log           what each version added and took away
    context       the query and batch that a task works for
    writing       files of tasks, and the one commit of a batch

Left out: row-level changes. Rows are appended, or a table is overwritten as a whole.
"""

from penstock.pipeline.lake.context import RunningQuery, running_query
from penstock.pipeline.lake.options import OriginColumns, TableOptions, table_options
from penstock.pipeline.lake.tables import ensure_table, resolve
from penstock.pipeline.lake.writing import (
    CommitOutcome,
    FilesWritten,
    TaskFiles,
    commit_files,
    discard_files,
)

__all__ = [
    "TableOptions",
    "OriginColumns",
    "table_options",
    "ensure_table",
    "resolve",
    "TaskFiles",
    "FilesWritten",
    "commit_files",
    "discard_files",
    "CommitOutcome",
    "RunningQuery",
    "running_query",
]
