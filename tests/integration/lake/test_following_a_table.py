"""Which files a query reads, batch by batch, while the table changes."""

import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.lake import TableOptions, TaskFiles, commit_files, compact, vacuum
from penstock.spark.lake.source import (
    LakeOffset,
    LakeStreamOptions,
    TableStream,
    position_from_json,
    read_files,
)
from penstock.spark.lake.table import RowsChanged, VersionGone

SCHEMA = pa.schema([("id", pa.int64())])


def append(table: TableOptions, number: int, files: int = 1) -> None:
    written = []
    for each in range(files):
        task = TaskFiles(table, SCHEMA, each)
        task.write(pa.table({"id": pa.array([number * 10 + each], pa.int64())}))
        written.append(task.finish())
    commit_files(table, SCHEMA, written, query_id="q", batch_id=number)


def follow(table: TableOptions, **options: object) -> TableStream:
    return TableStream(table, LakeStreamOptions(**options))  # type: ignore[arg-type]


def ids(table: TableOptions, stream: TableStream, start: LakeOffset, end: LakeOffset) -> list[int]:
    batches = read_files(table, stream.between(start, end), SCHEMA)
    return [id_ for batch in batches for id_ in batch.column("id").to_pylist()]


def test_a_query_reads_what_is_there_and_then_what_comes(table: TableOptions) -> None:
    append(table, 0)
    append(table, 1)
    stream = follow(table)

    first = stream.first()
    then = stream.advance(first, None, None)
    append(table, 2)
    append(table, 3)
    last = stream.advance(then, None, None)

    assert sorted(ids(table, stream, first, then)) == [0, 10]
    assert ids(table, stream, then, last) == [20, 30]
    assert stream.advance(last, None, None) == last


def test_a_batch_by_bytes_takes_whole_versions_and_one_at_least(table: TableOptions) -> None:
    for number in range(4):
        append(table, number, files=1 + number % 2)
    stream = follow(table, whole_versions=True)
    size = max(file.size for file in stream.between(stream.first(), stream.advance(stream.first(), None, 0)))

    position, seen = stream.first(), list[list[int]]()
    for bytes_max in (1, 3 * size + size // 2, 10 * size):
        end = stream.advance_by_versions(position, bytes_max, 3)
        seen.append(sorted(ids(table, stream, position, end)))
        position = end

    assert seen == [[0], [10, 11, 20], [30, 31]]
    assert stream.advance_by_versions(position, 1, 3) == position


def test_a_table_that_was_compacted_is_read_as_it_is_before_whole_versions_follow(
    table: TableOptions,
) -> None:
    append(table, 0)
    append(table, 1)
    compact(table)
    stream = follow(table, whole_versions=True)
    append(table, 2)

    first = stream.first(version_max=2)
    then = stream.advance_by_versions(first, 1, None)
    last = stream.advance_by_versions(then, 1, None)

    assert sorted(ids(table, stream, first, then)) == [0, 10]
    assert ids(table, stream, then, last) == [20]


def test_a_batch_takes_no_more_files_than_it_may(table: TableOptions) -> None:
    append(table, 0, files=3)
    append(table, 1, files=3)
    stream = follow(table)
    append(table, 2, files=3)

    position, sizes, seen = stream.first(), [], list[int]()
    for _ in range(6):
        end = stream.advance(position, 2, None)
        sizes.append(len(stream.between(position, end)))
        seen += ids(table, stream, position, end)
        position = end

    assert sizes == [2, 2, 2, 2, 1, 0]
    assert sorted(seen) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_compaction_is_passed_over(table: TableOptions) -> None:
    append(table, 0)
    stream = follow(table)
    start = stream.advance(stream.first(), None, None)
    append(table, 1)
    compact(table)
    append(table, 2)

    end = stream.advance(start, None, None)

    assert ids(table, stream, start, end) == [10, 20]


def test_a_batch_that_is_read_again_has_the_same_rows(table: TableOptions) -> None:
    append(table, 0, files=2)
    stream = follow(table)
    first = stream.first()
    end = stream.advance(first, 1, None)
    before = ids(table, stream, first, end)
    append(table, 1)
    compact(table)

    again = follow(table)

    # Spark kept the end of the first batch and not its start, so the start is made up anew.
    made_up = again.first()
    assert made_up != first
    assert ids(table, again, made_up, position_from_json(end.to_json())) == before


def test_a_query_that_starts_at_the_end_writes_its_beginning_down(table: TableOptions) -> None:
    append(table, 0)
    stream = follow(table, starting_version="latest")
    first = stream.first()

    begun = stream.advance(first, None, None)
    append(table, 1)
    again = follow(table, starting_version="latest")
    append(table, 2)
    end = again.advance(begun, None, None)

    assert begun != first
    assert ids(table, stream, first, begun) == []
    assert ids(table, again, again.first(), end) == [10, 20]


def test_a_query_may_start_at_a_version(table: TableOptions) -> None:
    for number in range(4):
        append(table, number)
    stream = follow(table, starting_version=2)

    assert ids(table, stream, stream.first(), stream.advance(stream.first(), None, None)) == [20, 30]


def test_a_version_that_is_not_there_yet_is_one_clear_error(table: TableOptions) -> None:
    append(table, 0)

    with pytest.raises(SparkOptionError, match=r"startingVersion: 7, but table .* is at version 0"):
        follow(table, starting_version=7).first()


def test_a_query_that_ends_by_itself_begins_no_later_than_it_ends(table: TableOptions) -> None:
    append(table, 0)
    stream = follow(table)
    version_max = stream.latest_version()
    append(table, 1)

    first = stream.first(version_max)

    assert ids(table, stream, first, stream.advance(first, None, version_max)) == [0]


def test_versions_that_take_rows_away_are_refused_or_passed_over(table: TableOptions) -> None:
    append(table, 0)
    append(table, 1)
    strict, lenient = follow(table), follow(table, ignore_deletes=True)
    start = strict.advance(strict.first(), None, None)
    DeltaTable(table.path).delete("id = 0")
    append(table, 2)

    with pytest.raises(RowsChanged, match="version 2 deleted rows; set ignoreDeletes"):
        strict.advance(start, None, None)
    assert ids(table, lenient, start, lenient.advance(start, None, None)) == [20]


def test_an_overwritten_table_is_refused_or_read_again(table: TableOptions) -> None:
    append(table, 0)
    strict, lenient = follow(table, ignore_deletes=True), follow(table, ignore_changes=True)
    start = strict.advance(strict.first(), None, None)
    task = TaskFiles(table, SCHEMA)
    task.write(pa.table({"id": pa.array([7], pa.int64())}))
    commit_files(table, SCHEMA, [task.finish()], overwrite=True)

    with pytest.raises(RowsChanged, match="version 1 overwrote or updated rows; set ignoreChanges"):
        strict.advance(start, None, None)
    assert ids(table, lenient, start, lenient.advance(start, None, None)) == [7]


def test_a_vacuumed_file_is_one_clear_error(table: TableOptions) -> None:
    append(table, 0)
    append(table, 1)
    stream = follow(table)
    start, end = stream.first(), stream.advance(stream.first(), None, None)
    compact(table)
    vacuum(table, 0, dry_run=False, unsafe=True)

    with pytest.raises(VersionGone, match=r"part-.*parquet is gone before it was read \(vacuumed\)"):
        ids(table, stream, start, end)


def test_a_version_that_left_the_log_is_one_clear_error(table: TableOptions) -> None:
    append(table, 0)
    stream = follow(table)
    start = stream.advance(stream.first(), None, None)
    append(table, 1)
    append(table, 2)
    DeltaTable(table.path).create_checkpoint()
    (Path(table.path) / "_delta_log" / f"{1:020}.json").unlink()

    with pytest.raises(VersionGone, match="version 1 is not in its log any more"):
        stream.advance(start, None, None)


def test_a_table_that_was_created_anew_is_one_clear_error(table: TableOptions) -> None:
    append(table, 0)
    stream = follow(table)
    start = stream.advance(stream.first(), None, None)
    shutil.rmtree(table.path)
    append(table, 0)

    with pytest.raises(PipelineError, match="was it created anew"):
        follow(table).advance(start, None, None)


def test_the_checkpoint_of_another_kind_of_source_is_one_clear_error() -> None:
    with pytest.raises(PipelineError, match="the checkpoint is of another query"):
        position_from_json({"topic": {"0": 17}})


def test_a_column_that_came_later_is_null_in_older_files(table: TableOptions) -> None:
    append(table, 0)
    wide = pa.schema([("id", pa.int64()), ("name", pa.string())])
    task = TaskFiles(table, wide)
    task.write(pa.table({"id": pa.array([10], pa.int64()), "name": ["x"]}))
    commit_files(table, wide, [task.finish()], query_id="q", batch_id=1)
    stream = follow(table)

    files = stream.between(stream.first(), stream.advance(stream.first(), None, None))

    rows = pa.Table.from_batches(list(read_files(table, files, wide))).sort_by("id").to_pylist()
    assert rows == [{"id": 0, "name": None}, {"id": 10, "name": "x"}]
    names = pa.schema([("name", pa.string())])
    assert sum(batch.num_rows for batch in read_files(table, files, names)) == 2


def test_only_one_of_many_that_race_for_a_batch_is_taken(table: TableOptions) -> None:
    append(table, 0)
    start = threading.Barrier(8)
    statuses: list[str] = []

    def race() -> None:
        task = TaskFiles(table, SCHEMA)
        task.write(pa.table({"id": pa.array([1], pa.int64())}))
        written = task.finish()
        start.wait(30)
        statuses.append(commit_files(table, SCHEMA, [written], query_id="q", batch_id=1).status)

    racers = [threading.Thread(target=race) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)

    assert sorted(statuses) == ["already"] * 7 + ["committed"]
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 2
