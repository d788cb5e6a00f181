"""Every row is in the table once, whatever dies, raises or fills up in between."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.spark.lake import TableOptions, TaskFiles, commit_files
from penstock.spark.lake.sink import LakeStreamWriter, Messages, asked_table_to_write
from pyspark_penstock_lake import DefaultSource
from tests.support.small_disk import small_disk

DRIVER = Path(__file__).parent / "driver.py"


def fill_table(path: str, batches: int, rows_each: int = 10) -> None:
    table = TableOptions(path)
    for batch_id in range(batches):
        ids = range(batch_id * rows_each, (batch_id + 1) * rows_each)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "junk": [os.urandom(100) for _ in ids]})
        files = TaskFiles(table, rows.schema)
        files.write(rows)
        commit_files(table, rows.schema, [files.finish()], query_id="test", batch_id=batch_id)


def ids(path: str) -> list[int]:
    found: list[int] = DeltaTable(path).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def said_by(flag: Path) -> Path:
    """What the driver with that flag wrote to its standard error."""
    return flag.with_suffix(".err")


def drive(paths: list[str], hold: str, flag: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(DRIVER), *paths, hold, str(flag)]
    with said_by(flag).open("wb") as said:
        return subprocess.Popen(command, env=environment, start_new_session=True, stderr=said)


def kill_when_held(driver: subprocess.Popen[bytes], flag: Path) -> None:
    """SIGKILL for the driver and its JVM as soon as the query stands still."""
    held = threading.Event()
    for _ in range(2400):
        if flag.exists():
            break
        assert driver.poll() is None, (
            f"the driver ended before it came to its second commit: {said_by(flag).read_text()[-4000:]}"
        )
        held.wait(0.1)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(30)
    assert flag.exists(), "the query never came to its second commit"


@pytest.mark.skipif("PENSTOCK_SPARK_KILLS" not in os.environ, reason="it takes minutes: make sparkkills")
@pytest.mark.timeout(600)
def test_a_driver_killed_around_its_commit_writes_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    source, target, checkpoint = (str(tmp_path / name) for name in ("source", "target", "checkpoint"))
    fill_table(source, 8)

    for hold in ("before", "after"):
        flag = tmp_path / hold
        kill_when_held(drive([source, target, checkpoint], hold, flag), flag)
    rows = spark.readStream.format("penstock-lake").load(source)
    writer = rows.writeStream.format("penstock-lake").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(target).awaitTermination()

    assert ids(target) == list(range(80))
    assert len(list(Path(target).glob("*.parquet"))) > len(DeltaTable(target).file_uris()), (
        "the batch that was killed before its commit left files that no version names"
    )


def test_a_commit_that_raises_after_it_took_effect_is_not_undone(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    fill_table(source, 2)
    flag = str(tmp_path / "raised")

    class RaisingWriter(LakeStreamWriter):
        def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
            LakeStreamWriter.commit(self, messages, batchId)
            if not Path(flag).exists():
                Path(flag).touch()
                raise RuntimeError("the connection broke after the commit")

    class RaisingLake(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "raising-lake"

        def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def]  # noqa: N802
            return RaisingWriter(asked_table_to_write(self.options, schema), schema, overwrite)

    spark.dataSource.register(RaisingLake)
    rows = spark.readStream.format("penstock-lake").load(source)
    writer = rows.writeStream.format("raising-lake").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    with pytest.raises(StreamingQueryException, match="the connection broke after the commit"):
        writer.trigger(availableNow=True).start(target).awaitTermination()
    assert ids(target) == list(range(20))
    writer.trigger(availableNow=True).start(target).awaitTermination()

    assert ids(target) == list(range(20))
    assert len(list(Path(target).glob("*.parquet"))) == len(DeltaTable(target).file_uris())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


def test_a_query_goes_on_when_a_full_disk_has_space_again(
    spark: SparkSession, tmp_path: Path, disk: Path
) -> None:
    source, target = str(tmp_path / "source"), str(disk / "target")
    fill_table(source, 3, rows_each=1000)
    filler = disk / "filler"
    filler.write_bytes(b"x" * 800_000)
    rows = spark.readStream.format("penstock-lake").option("maxFilesPerTrigger", 1).load(source)
    writer = rows.writeStream.format("penstock-lake").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )

    with pytest.raises(StreamingQueryException, match="no space left on the disk; the batch failed"):
        writer.trigger(availableNow=True).start(target).awaitTermination()
    half = ids(target)
    filler.unlink()
    writer.trigger(availableNow=True).start(target).awaitTermination()

    assert half in (list(range(1000)), list(range(2000)))
    assert ids(target) == list(range(3000))
