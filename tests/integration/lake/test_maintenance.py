"""Compaction and vacuum leave the rows, the bookkeeping and the readers of a table alone."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake import CompactReport, TableOptions, TaskFiles, commit_files, compact, vacuum
from penstock.spark.lake.table import TableMissing


def append(table: TableOptions, batch_id: int, query_id: str = "q") -> str:
    rows = pa.table(
        {
            "topic": ["t"],
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([batch_id], pa.int64()),
        }
    )
    files = TaskFiles(table, rows.schema)
    files.write(rows)
    return commit_files(table, rows.schema, [files.finish()], query_id=query_id, batch_id=batch_id).status


def offsets(table: TableOptions) -> list[int]:
    found: list[int] = DeltaTable(table.path).to_pyarrow_table()["offset"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("z_order_columns", [(), ("offset",)])
def test_a_compacted_table_has_the_same_rows_and_remembers_its_batches(
    table: TableOptions, z_order_columns: tuple[str, ...]
) -> None:
    for batch_id in range(5):
        append(table, batch_id)

    report = compact(table.path, z_order_columns=z_order_columns)

    assert (report.files_removed, report.files_added) == (5, 1)
    assert append(table, 4) == "already"
    assert append(table, 5) == "committed"
    assert offsets(table) == list(range(6))


def test_batches_are_committed_while_the_table_is_compacted(table: TableOptions) -> None:
    append(table, 0)
    reports: list[CompactReport] = []
    compacting = threading.Thread(target=lambda: reports.extend(compact(table) for _ in range(10)))

    compacting.start()
    for batch_id in range(1, 30):
        append(table, batch_id)
    compacting.join()

    assert len(reports) == 10
    assert offsets(table) == list(range(30))


def test_vacuum_removes_what_no_version_names(table: TableOptions) -> None:
    append(table, 0)
    left_behind = Path(table.path) / "part-00000-left-behind.parquet"
    left_behind.write_bytes(b"a task that was killed")

    listed = vacuum(table, retention_hours=0, unsafe=True)
    assert left_behind.exists()
    removed = vacuum(table, retention_hours=0, dry_run=False, unsafe=True)

    assert listed.files == removed.files == (left_behind.name,)
    assert not left_behind.exists()
    assert offsets(table) == [0]


def test_vacuum_keeps_what_was_written_lately(table: TableOptions) -> None:
    append(table, 0)
    (Path(table.path) / "part-00000-being-written.parquet").write_bytes(b"")

    assert vacuum(table).files == ()
    with pytest.raises(SparkOptionError, match="retentionHours: 0 is less than 1"):
        vacuum(table, retention_hours=0)


def test_bad_input_is_one_clear_error(table: TableOptions) -> None:
    with pytest.raises(TableMissing, match="there is no Delta table"):
        compact(table)
    append(table, 0)
    with pytest.raises(SparkOptionError, match="has no column 'nope'"):
        compact(table, z_order_columns=["nope"])
