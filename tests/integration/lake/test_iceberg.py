"""Iceberg tables take each batch once too."""

import datetime as dt
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake import TableOptions, TaskFiles, commit_files, compact, discard_files, resolve
from penstock.spark.lake.iceberg import open_iceberg
from penstock.spark.lake.table import RowsAlreadyThere, SchemaConflict

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "day": [dt.date(2026, 11, 15), dt.date(2026, 11, 16), None],
        "name": ["a", None, "c"],
        "labels": pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string())),
        "moment": pa.array([dt.datetime(2026, 11, 15, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def iceberg(tmp_path: Path) -> TableOptions:
    (tmp_path / "warehouse").mkdir()
    return TableOptions(
        "metrics.raw",
        table_format="iceberg",
        catalog=(
            ("type", "sql"),
            ("uri", f"sqlite:///{tmp_path}/catalog.db"),
            ("warehouse", f"file://{tmp_path}/warehouse"),
        ),
    )


def append(table: TableOptions, rows: pa.Table, query_id: str, batch_id: int) -> str:
    resolved = resolve(table, rows.schema)
    files = TaskFiles(resolved, rows.schema, query_id=query_id)
    files.write(rows)
    return commit_files(resolved, rows.schema, [files.finish()], query_id=query_id, batch_id=batch_id).status


def content(table: TableOptions) -> pa.Table:
    opened = open_iceberg(table)
    assert opened is not None
    return opened.scan().to_arrow().sort_by("id")


@pytest.mark.parametrize("columns", [None, ("day",), ("day", "name")])
def test_a_batch_is_taken_once_and_read_back(iceberg: TableOptions, columns: tuple[str, ...] | None) -> None:
    iceberg = replace(iceberg, partition_columns=columns)

    statuses = [append(iceberg, ROWS, "q", batch_id) for batch_id in (0, 0)]

    assert statuses == ["committed", "already"]
    assert content(iceberg).to_pylist() == ROWS.to_pylist()


def test_only_one_of_many_that_race_for_a_batch_is_taken(iceberg: TableOptions) -> None:
    append(iceberg, ROWS, "q", 0)
    resolved = resolve(iceberg, ROWS.schema)
    start = threading.Barrier(4)
    statuses: list[str] = []

    def race() -> None:
        files = TaskFiles(resolved, ROWS.schema)
        files.write(ROWS)
        written = files.finish()
        start.wait(30)
        statuses.append(commit_files(resolved, ROWS.schema, [written], query_id="q", batch_id=1).status)

    racers = [threading.Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)

    assert sorted(statuses) == ["already"] * 3 + ["committed"]
    assert content(iceberg).num_rows == 6


def test_columns_are_added_and_never_changed(iceberg: TableOptions) -> None:
    append(iceberg, ROWS, "q", 0)

    append(iceberg, pa.table({"id": pa.array([4], pa.int64()), "host": ["h"]}), "q", 1)

    assert content(iceberg).select(["id", "host"]).to_pylist()[-1] == {"id": 4, "host": "h"}
    with pytest.raises(SchemaConflict, match="column id is int64 there and string in the rows"):
        append(iceberg, pa.table({"id": ["5"]}), "q", 2)


def test_a_lost_checkpoint_is_noticed(iceberg: TableOptions) -> None:
    rows = pa.table(
        {
            "topic": ["t"],
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([7], pa.int64()),
            "id": pa.array([1], pa.int64()),
        }
    )
    append(iceberg, rows, "old", 0)

    with pytest.raises(RowsAlreadyThere, match="t/0 up to offset 7"):
        append(iceberg, rows, "new", 0)
    assert append(replace(iceberg, on_overlap="skip"), rows, "new", 0) == "empty"


def test_files_of_a_failed_batch_are_removed_and_those_of_a_committed_one_kept(iceberg: TableOptions) -> None:
    resolved = resolve(iceberg, ROWS.schema)
    written = []
    for _ in range(2):
        files = TaskFiles(resolved, ROWS.schema)
        files.write(ROWS)
        written.append(files.finish())
    commit_files(resolved, ROWS.schema, [written[0]], query_id="q", batch_id=0)

    for batch_id in range(2):
        discard_files(resolved, [written[batch_id]], query_id="q", batch_id=batch_id)

    assert content(iceberg).num_rows == 3
    assert len(list(Path(resolved.path).rglob("*.parquet"))) == 1


def test_what_is_not_there_for_iceberg_says_so(iceberg: TableOptions) -> None:
    resolved = resolve(iceberg, ROWS.schema)

    with pytest.raises(SparkOptionError, match="never overwritten"):
        commit_files(resolved, ROWS.schema, [], overwrite=True)
    with pytest.raises(SparkOptionError, match="written here, and read by other tools"):
        compact(iceberg)
    with pytest.raises(SparkOptionError, match=r"catalog.type: say which catalog"):
        resolve(replace(iceberg, catalog=()), ROWS.schema)
    with pytest.raises(SparkOptionError, match="is not a table of a catalog"):
        resolve(replace(iceberg, path="/lake/raw"), ROWS.schema)
    with pytest.raises(SparkOptionError, match="is partitioned by nothing"):
        resolve(replace(iceberg, partition_columns=("day",)), ROWS.schema)
