"""Rows out of a table: the files of a version, or of every version as it comes.

    snapshot     all files of one version
    positions    how far a query has read, as Spark keeps it
    stream       which files lie between two positions
    scan         files as Arrow batches, packed into tasks

A stream reads what each version added, in the order of versions. Compaction adds files too, but says
that they change no data, and those are passed over: a table may be compacted at any time while
queries follow it. A file that is named but gone was vacuumed, and the error says so.

Left out: filters and column pruning, which Spark does not hand to sources written in Python; splitting
a file between tasks; tables with deletion vectors.
"""

from penstock.pipeline.lake.reading.positions import Position, position_from_json
from penstock.pipeline.lake.reading.scan import pack, read_files
from penstock.pipeline.lake.reading.snapshot import check_columns, live_files, table_at
from penstock.pipeline.lake.reading.stream import StreamOptions, TableStream

__all__ = [
    "Position",
    "position_from_json",
    "pack",
    "read_files",
    "check_columns",
    "live_files",
    "table_at",
    "StreamOptions",
    "TableStream",
]
