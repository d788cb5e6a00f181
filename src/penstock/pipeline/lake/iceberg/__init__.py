"""Iceberg tables as sinks, through pyiceberg: `tableFormat=iceberg`.

    catalog    the table of a catalog, created with the first rows
    commit     all files of a batch into the table, once

Tasks write files as they do for Delta, below the table's `data` directory, partition columns
included; the driver adds them in one commit. What Delta keeps as application transactions is kept
here as properties of the table, set in the same commit that adds the files: unlike snapshots, which
expire, properties stay.

Left out: reading, overwriting, compaction and vacuum, for which pyiceberg and Iceberg's own tools
serve; transforms of partition columns other than the value itself.
"""

from penstock.pipeline.lake.iceberg.catalog import resolve_iceberg
from penstock.pipeline.lake.iceberg.commit import (
    IcebergBatch,
    commit_to_iceberg,
    is_taken_by_iceberg,
    recorded_by_iceberg,
)

__all__ = [
    "resolve_iceberg",
    "IcebergBatch",
    "commit_to_iceberg",
    "is_taken_by_iceberg",
    "recorded_by_iceberg",
]
