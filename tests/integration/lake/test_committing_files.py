"""Files of tasks become part of a table: once, whole, and readable by others."""

import datetime as dt
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableAlterer

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake import (
    TableOptions,
    TaskFiles,
    WrittenFiles,
    commit_files,
    discard_files,
    ensure_table,
    refuse_other_queries,
)
from penstock.spark.lake.source import live_files, read_files, table_at
from penstock.spark.lake.table import RowsAlreadyThere, SchemaConflict

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "day": pa.array([dt.date(2026, 11, 15), dt.date(2026, 11, 16), None, dt.date(2026, 11, 15)]),
        "name": ["a", "b", None, "d"],
    }
)


def write(table: TableOptions, rows: pa.Table) -> WrittenFiles:
    files = TaskFiles(table, rows.schema)
    files.write(rows)
    return files.finish()


def content(table: TableOptions) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = DeltaTable(table.path).to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def parquet_files(path: str) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in Path(path).rglob("*.parquet"))


def test_what_tasks_wrote_is_read_back_by_delta(table: TableOptions) -> None:
    table = replace(table, partition_columns=("day",))
    written = [write(table, ROWS.slice(0, 2)), write(table, ROWS.slice(2))]

    outcome = commit_files(table, ROWS.schema, written, query_id="q", batch_id=0)

    assert (outcome.status, outcome.version, outcome.rows) == ("committed", 0, 4)
    assert content(table) == sorted(ROWS.to_pylist(), key=str)
    assert all(path.startswith("day=") for path in parquet_files(table.path))


def test_every_kind_of_column_keeps_its_values(table: TableOptions) -> None:
    moment = dt.datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=dt.UTC)
    kinds = {
        "long": pa.array([1], pa.int64()),
        "byte": pa.array([1], pa.int8()),
        "short": pa.array([1], pa.int16()),
        "float": pa.array([1.5], pa.float32()),
        "double": pa.array([float("nan")], pa.float64()),
        "flag": pa.array([True]),
        "bytes": pa.array([b"\x00\xff"], pa.binary()),
        "day": pa.array([dt.date(1969, 12, 31)]),
        "moment": pa.array([moment], pa.timestamp("us", "Etc/UTC")),
        "local": pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
        "amount": pa.array([Decimal("12345.67")], pa.decimal128(10, 2)),
        "list": pa.array([["a", None]], pa.list_(pa.string())),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        "struct": pa.array([{"x": 1, "y": [1]}]),
        "text": ["ü" * 100],
    }
    rows = pa.table(kinds)

    commit_files(table, rows.schema, [write(table, rows)], query_id="q", batch_id=0)

    assert str(content(table)) == str(rows.to_pylist()).replace("Etc/UTC", "UTC")


@pytest.mark.parametrize("value", ["a b", "a/b", "ä%=:", "%2F", "a+b&c", "..", "'\"", None])
def test_any_text_can_be_a_partition(table: TableOptions, value: str | None) -> None:
    table = replace(table, partition_columns=("name",))
    rows = pa.table({"id": [1], "name": pa.array([value], pa.string())})

    commit_files(table, rows.schema, [write(table, rows)], query_id="q", batch_id=0)

    assert content(table) == rows.to_pylist()


def test_a_batch_is_taken_once(table: TableOptions) -> None:
    first = write(table, ROWS)
    commit_files(table, ROWS.schema, [first], query_id="q", batch_id=7)

    same = commit_files(table, ROWS.schema, [first], query_id="q", batch_id=7)
    again = commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=7)

    assert (same.status, again.status) == ("already", "already")
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 4
    assert parquet_files(table.path) == [file.path for file in first.files], "what nobody took is gone"


def test_another_query_has_batches_of_its_own(table: TableOptions) -> None:
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=3)

    outcome = commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="other", batch_id=0)

    assert outcome.status == "committed"
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 8


def test_aborting_a_batch_that_was_committed_removes_nothing(table: TableOptions) -> None:
    written = write(table, ROWS)
    commit_files(table, ROWS.schema, [written], query_id="q", batch_id=0)

    discard_files(table, [written], query_id="q", batch_id=0)

    assert content(table) == sorted(ROWS.to_pylist(), key=str)


def test_aborting_a_batch_removes_the_files_that_no_commit_took(table: TableOptions) -> None:
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=0)
    before = parquet_files(table.path)

    discard_files(table, [write(table, ROWS)], query_id="q", batch_id=1)

    assert parquet_files(table.path) == before


def test_a_task_that_fails_leaves_no_files(table: TableOptions) -> None:
    files = TaskFiles(table, ROWS.schema)
    files.write(ROWS)
    files.finish()

    files.discard()

    assert parquet_files(table.path) == []


def test_an_empty_batch_makes_the_table_and_no_version_after_that(table: TableOptions) -> None:
    for batch_id in range(3):
        assert commit_files(table, ROWS.schema, [], query_id="q", batch_id=batch_id).status == "empty"

    assert DeltaTable(table.path).version() == 0


def test_new_columns_are_added_and_missing_ones_are_null(table: TableOptions) -> None:
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=0)
    later = pa.table({"id": pa.array([5], pa.int64()), "host": ["h"]})

    commit_files(table, later.schema, [write(table, later)], query_id="q", batch_id=1)

    rows = DeltaTable(table.path).to_pyarrow_table().sort_by("id").to_pylist()
    assert rows[-1] == {"id": 5, "day": None, "name": None, "host": "h"}
    assert [row["host"] for row in rows] == [None, None, None, None, "h"]


def test_a_batch_that_another_driver_commits_while_columns_are_added_is_taken_once(
    table: TableOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=0)
    wider = ROWS.append_column("extra", pa.array([1, 2, 3, 4]))
    ours, theirs = write(table, wider), write(table, wider)
    add_columns = TableAlterer.add_columns

    def overtaken(alterer: TableAlterer, *arguments: Any, **named: Any) -> None:
        add_columns(alterer, *arguments, **named)
        commit_files(table, wider.schema, [theirs], query_id="q", batch_id=1)

    monkeypatch.setattr(TableAlterer, "add_columns", overtaken)
    outcome = commit_files(table, wider.schema, [ours], query_id="q", batch_id=1)

    assert outcome.status == "already"
    assert len(content(table)) == 2 * ROWS.num_rows


def test_new_columns_are_refused_where_the_user_says_so(table: TableOptions) -> None:
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=0)
    later = pa.table({"id": pa.array([5], pa.int64()), "host": ["h"]})
    strict = replace(table, merge_schema=False)

    with pytest.raises(SchemaConflict, match="no column host, and mergeSchema is false"):
        commit_files(strict, later.schema, [write(strict, later)], query_id="q", batch_id=1)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"id": ["5"]}, "column id is int64 there and string in the rows"),
        ({"ID": [5]}, "column ID is called id there"),
    ],
)
def test_a_change_of_type_is_refused(
    table: TableOptions, column: dict[str, list[object]], message: str
) -> None:
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=0)
    later = pa.table(column)

    with pytest.raises(SchemaConflict, match=message):
        commit_files(table, later.schema, [write(table, later)], query_id="q", batch_id=1)

    assert DeltaTable(table.path).version() == 0


def test_other_partition_columns_than_the_tables_are_refused(table: TableOptions) -> None:
    ensure_table(replace(table, partition_columns=("day",)), ROWS.schema)
    other = replace(table, partition_columns=("name",))

    with pytest.raises(SparkOptionError, match="is partitioned by day"):
        commit_files(other, ROWS.schema, [write(other, ROWS)], query_id="q", batch_id=0)


def topic_rows(start: int, end: int, partition: int = 0) -> pa.Table:
    count = end - start
    return pa.table(
        {
            "topic": ["t"] * count,
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(start, end), pa.int64()),
        }
    )


def commit(table: TableOptions, rows: pa.Table, query_id: str, batch_id: int) -> str:
    written = write(table, rows)
    return commit_files(table, rows.schema, [written], query_id=query_id, batch_id=batch_id).status


def test_a_query_with_a_lost_checkpoint_is_refused(table: TableOptions) -> None:
    commit(table, topic_rows(0, 50), "old", 0)
    commit(table, topic_rows(50, 100), "old", 1)

    with pytest.raises(RowsAlreadyThere, match=r"t/0 up to offset 99 from another query.* from 10 on"):
        commit(table, topic_rows(10, 20), "new", 0)

    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 100


def test_rows_without_origin_are_taken_from_one_query_alone(table: TableOptions) -> None:
    refuse_other_queries(table, "q")
    ensure_table(table, ROWS.schema)
    refuse_other_queries(table, "q")
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=3)

    refuse_other_queries(table, "q")
    with pytest.raises(RowsAlreadyThere, match="it has rows of another query"):
        refuse_other_queries(table, "new")


def test_a_new_query_goes_on_where_the_old_one_ended(table: TableOptions) -> None:
    commit(table, topic_rows(0, 50), "old", 0)

    assert commit(table, topic_rows(50, 60), "new", 0) == "committed"
    assert commit(table, topic_rows(60, 70), "new", 1) == "committed"


def test_a_partition_that_a_new_query_brings_later_is_checked_too(table: TableOptions) -> None:
    commit(table, topic_rows(0, 50, partition=1), "old", 0)
    commit(table, topic_rows(0, 50, partition=0), "new", 0)

    with pytest.raises(RowsAlreadyThere, match="t/1"):
        commit(table, topic_rows(0, 50, partition=1), "new", 1)


def test_a_query_may_bring_its_own_records_out_of_order(table: TableOptions) -> None:
    commit(table, topic_rows(50, 60), "q", 0)

    assert commit(table, topic_rows(0, 50), "q", 1) == "committed"


def test_records_are_written_again_where_the_user_allows_it(table: TableOptions) -> None:
    commit(table, topic_rows(0, 50), "old", 0)

    assert commit(replace(table, on_overlap="allow"), topic_rows(0, 50), "new", 0) == "committed"
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 100


def test_readers_can_skip_files_by_their_statistics(table: TableOptions) -> None:
    moment = dt.datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=dt.UTC)
    for batch_id in range(3):
        rows = pa.table(
            {
                "id": pa.array([batch_id * 10, batch_id * 10 + 9], pa.int64()),
                "moment": [moment, None],
                "text": ["x" * 100, "y"],
            }
        )
        commit(table, rows, "q", batch_id)

    actions = pa.table(DeltaTable(table.path).get_add_actions(flatten=True)).sort_by("min.id").to_pylist()

    assert [(row["min.id"], row["max.id"]) for row in actions] == [(0, 9), (10, 19), (20, 29)]
    assert {row["null_count.moment"] for row in actions} == {1}
    assert all(row["min.moment"] <= moment <= row["max.moment"] for row in actions)
    assert all(row["min.text"] <= "x" * 100 <= row["max.text"] for row in actions)
    found = DeltaTable(table.path).to_pyarrow_dataset().to_table(filter=pa.compute.field("id") == 19)
    assert found.num_rows == 1


def test_files_are_cut_at_their_target_size(table: TableOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.lake.task_files.GROUP_ROWS", 100)
    table = replace(table, target_file_bytes=4_000, compression="none")
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "junk": [os.urandom(16) for _ in range(1000)]})

    written = write(table, rows)
    files = TaskFiles(table, rows.schema)
    for batch in rows.to_batches(max_chunksize=100):
        files.write(batch)
    small = files.finish()

    assert len(written.files) == 1
    assert len(small.files) == 5
    commit_files(table, rows.schema, [small], query_id="q", batch_id=0)
    assert DeltaTable(table.path).to_pyarrow_table().sort_by("id").equals(rows)


def test_a_query_skips_what_the_table_has_in_every_batch(table: TableOptions) -> None:
    commit(table, topic_rows(0, 50), "old", 0)
    skipping = replace(table, on_overlap="skip")

    for batch_id in range(4):
        rows = topic_rows(batch_id * 20, batch_id * 20 + 20)
        files = TaskFiles(skipping, rows.schema, query_id="new")
        files.write(rows)
        commit_files(skipping, rows.schema, [files.finish()], query_id="new", batch_id=batch_id)

    assert sorted(DeltaTable(table.path).to_pyarrow_table()["offset"].to_pylist()) == list(range(80))


def test_an_object_store_is_written_through_delta(tmp_path: Path) -> None:
    # Any address but a plain path goes through delta-rs, and this one needs no server.
    table = TableOptions(f"file://{tmp_path}/table", partition_columns=("name",))
    (tmp_path / "table").mkdir()
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a b", "c/d"]})
    written = write(table, rows)

    commit_files(table, rows.schema, [written], query_id="q", batch_id=0)
    discard_files(table, [write(table, rows)], query_id="q", batch_id=1)

    files = live_files(table_at(table))
    read = pa.Table.from_batches(list(read_files(table, files, rows.schema)))
    assert read.sort_by("id").equals(rows)
    assert len(parquet_files(str(tmp_path / "table"))) == 2


def test_files_are_on_the_disk_before_the_log_names_them_and_the_log_before_a_commit_returns(
    table: TableOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_files(table, ROWS.schema, [write(table, ROWS)], query_id="q", batch_id=0)
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), table.path))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    written = write(table, ROWS)
    commit_files(table, ROWS.schema, [written], query_id="q", batch_id=1)

    entry = f"_delta_log/{1:020}.json"
    assert synced.index(written.files[0].path) < synced.index(".") < synced.index(entry)
    assert synced.index(entry) < synced.index("_delta_log")


def test_many_partitions_are_written_within_bounds(
    table: TableOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.lake.task_files.OPEN_FILES_MAX", 3)
    monkeypatch.setattr("penstock.spark.lake.task_files.BUFFERED_BYTES_MAX", 1000)
    table = replace(table, partition_columns=("part",))
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "part": [number % 7 for number in range(1000)]})

    written = write(table, rows)
    commit_files(table, rows.schema, [written], query_id="q", batch_id=0)

    assert DeltaTable(table.path).to_pyarrow_table().sort_by("id").equals(rows)
    assert {file.partition_values for file in written.files} == {(str(part),) for part in range(7)}
