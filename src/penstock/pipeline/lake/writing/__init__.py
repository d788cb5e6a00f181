"""Rows into a table: tasks write files, the driver makes them count.

    task_files    the parquet files of one task, by partition, and what is known of each
    statistics    least, greatest and nulls of a file's columns, for readers that skip
    origins       which offsets of which topics the rows are, and who has brought them before
    repeats       rows that another query has brought before, left out or refused
    commit        all files of a batch into the table, once
    outcome       what became of a batch

Files are written straight into the table's directory under names that cannot be guessed. Until the
one commit that names them they are nobody's: a crash leaves files that no reader looks at, and that
vacuum removes when they are old.

Left out: buffering across batches. A batch makes at least one file per partition that it has rows
for, and `compact` puts small ones together.
"""

from penstock.pipeline.lake.writing.commit import commit_files, discard_files
from penstock.pipeline.lake.writing.origins import Origin
from penstock.pipeline.lake.writing.outcome import CommitOutcome, FileWritten
from penstock.pipeline.lake.writing.repeats import refuse_other_queries
from penstock.pipeline.lake.writing.task_files import FilesWritten, TaskFiles

__all__ = [
    "TaskFiles",
    "FilesWritten",
    "FileWritten",
    "Origin",
    "commit_files",
    "discard_files",
    "refuse_other_queries",
    "CommitOutcome",
]
