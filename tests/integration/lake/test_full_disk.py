"""A full disk fails a batch as a whole, with one clear error; with space again the batch goes through."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.lake import TableOptions, TaskFiles, commit_files
from penstock.spark.lake.table import LakeFull
from tests.support.small_disk import small_disk

SMALL = pa.table({"id": pa.array([1], pa.int64()), "junk": [b"x"]})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


def big(count: int) -> pa.Table:
    return pa.table(
        {"id": pa.array([1] * count, pa.int64()), "junk": [os.urandom(1000) for _ in range(count)]}
    )


def fill(disk: Path) -> Path:
    """Leave not a single block."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    return filler


def test_a_task_that_finds_the_disk_full_says_so_and_leaves_nothing(disk: Path) -> None:
    table = TableOptions(str(disk / "table"))
    files = TaskFiles(table, SMALL.schema)
    files.write(big(4000))

    with pytest.raises(LakeFull, match=r"no space left on the disk.*free space and start the query again"):
        files.finish()
    files.discard()

    assert list((disk / "table").rglob("*.parquet")) == []


def test_a_commit_that_finds_the_disk_full_takes_nothing_and_succeeds_later(disk: Path) -> None:
    table = TableOptions(str(disk / "table"))
    for batch_id in range(2):
        files = TaskFiles(table, SMALL.schema)
        files.write(SMALL)
        written = files.finish()
        if batch_id == 0:
            commit_files(table, SMALL.schema, [written], query_id="q", batch_id=0)
    filler = fill(disk)

    with pytest.raises(LakeFull, match="nothing of it was committed"):
        commit_files(table, SMALL.schema, [written], query_id="q", batch_id=1)
    assert DeltaTable(table.path).version() == 0
    filler.unlink()
    outcome = commit_files(table, SMALL.schema, [written], query_id="q", batch_id=1)

    assert outcome.status == "committed"
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 2


def test_a_disk_that_is_full_right_after_the_commit_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableOptions(str(tmp_path / "table"))
    files = TaskFiles(table, SMALL.schema)
    files.write(SMALL)
    written = files.finish()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        LakeFull, match=r"no space left on the disk.*the batch was committed.*not be there twice"
    ):
        commit_files(table, SMALL.schema, [written], query_id="q", batch_id=0)
    monkeypatch.undo()

    assert commit_files(table, SMALL.schema, [written], query_id="q", batch_id=0).status == "already"
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 1


def test_other_errors_of_the_disk_are_told_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("a file where the table should be")
    files = TaskFiles(TableOptions(str(tmp_path / "table")), SMALL.schema)
    files.write(SMALL)

    with pytest.raises(OSError, match=r"File exists|Not a directory") as caught:
        files.finish()

    assert caught.value.errno in (errno.EEXIST, errno.ENOTDIR)
