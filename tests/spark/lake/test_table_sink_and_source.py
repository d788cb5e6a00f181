"""Tables written and read by Spark, in batch jobs and streaming queries."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.lake import TableOptions, TaskFiles, commit_files

LAKE = "penstock-lake"
EVERY_KIND = """
    SELECT CAST(1 AS TINYINT) AS byte, CAST(2 AS SMALLINT) AS short, 3 AS int, CAST(4 AS BIGINT) AS long,
        CAST(1.5 AS FLOAT) AS float, CAST(2.5 AS DOUBLE) AS double, 12345.67 AS amount, true AS flag,
        'text' AS text, CAST('bytes' AS BINARY) AS bytes, DATE'1969-12-31' AS day,
        TIMESTAMP'2026-11-15 12:00:00.123456' AS moment,
        TIMESTAMP_NTZ'2026-11-15 12:00:00.123456' AS local,
        array(named_struct('x', 1, 'y', 'z')) AS list, map('k', array(1, 2)) AS map,
        named_struct('a', named_struct('b', 1)) AS struct, CAST(NULL AS STRING) AS nothing
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def add(path: str, ids: range, batch_id: int) -> None:
    """A version of the table, written without Spark."""
    table = TableOptions(path)
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    files = TaskFiles(table, rows.schema)
    files.write(rows)
    commit_files(table, rows.schema, [files.finish()], query_id="test", batch_id=batch_id)


def follow(spark: SparkSession, path: str, target: str, checkpoint: str, **options: str) -> StreamingQuery:
    """Copy what is new in one table into another, and end."""
    rows = spark.readStream.format(LAKE).options(**options).load(path)
    writer = rows.writeStream.format(LAKE).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(target)
    query.awaitTermination()
    return query


def ids(path: str) -> list[int]:
    found: list[int] = DeltaTable(path).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def test_a_batch_job_writes_every_kind_of_column_and_reads_it_back(spark: SparkSession, path: str) -> None:
    rows = spark.sql(EVERY_KIND)

    for _ in range(2):
        rows.write.format(LAKE).option("partitionColumns", "day,text").mode("append").save(path)

    read = spark.read.format(LAKE).load(path)
    assert read.schema.simpleString() == rows.schema.simpleString()
    assert read.collect() == rows.collect() * 2
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2
    assert read.select("day").distinct().collect()[0].day == dt.date(1969, 12, 31)
    assert DeltaTable(path).to_pyarrow_table()["amount"].to_pylist() == [Decimal("12345.67")] * 2


def test_overwriting_replaces_rows_and_leaves_the_old_version_readable(
    spark: SparkSession, path: str
) -> None:
    spark.range(10).write.format(LAKE).mode("append").save(path)

    spark.range(3).write.format(LAKE).mode("overwrite").save(path)

    assert spark.read.format(LAKE).load(path).count() == 3
    assert spark.read.format(LAKE).option("versionAsOf", 0).load(path).count() == 10
    with pytest.raises(AnalysisException, match="version 9 cannot be read, the newest version is 1"):
        spark.read.format(LAKE).option("versionAsOf", 9).load(path)


def test_a_stream_copies_a_table_version_by_version(spark: SparkSession, path: str, tmp_path: Path) -> None:
    target, checkpoint = str(tmp_path / "copy"), str(tmp_path / "checkpoint")
    for batch_id in range(3):
        add(path, range(batch_id * 10, batch_id * 10 + 10), batch_id)

    first = follow(spark, path, target, checkpoint, maxFilesPerTrigger="2")
    add(path, range(30, 40), 3)
    DeltaTable(path).optimize.compact()
    add(path, range(40, 50), 4)
    second = follow(spark, path, target, checkpoint, maxFilesPerTrigger="2")

    assert ids(target) == list(range(50))
    assert [progress["numInputRows"] for progress in first.recentProgress] == [20, 10]
    assert [progress["numInputRows"] for progress in second.recentProgress] == [20]


def test_a_stream_refuses_versions_that_take_rows_away(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    target, checkpoint = str(tmp_path / "copy"), str(tmp_path / "checkpoint")
    add(path, range(10), 0)
    follow(spark, path, target, checkpoint)
    DeltaTable(path).delete("id = 3")

    with pytest.raises(
        StreamingQueryException, match="version 1 overwrote or updated rows; set ignoreChanges"
    ):
        follow(spark, path, target, checkpoint)


def test_a_query_with_a_lost_checkpoint_is_refused(spark: SparkSession, path: str, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    rows = spark.range(100).selectExpr(
        "'t' AS topic", "CAST(id % 2 AS INT) AS partition", "id DIV 2 AS offset"
    )
    rows.write.format(LAKE).option("originColumns", "none").mode("append").save(source)
    follow(spark, source, path, str(tmp_path / "first"))

    with pytest.raises(StreamingQueryException, match="t/0 up to offset 49 from another query"):
        follow(spark, source, path, str(tmp_path / "second"))

    assert DeltaTable(path).to_pyarrow_table().num_rows == 100


def test_batch_jobs_inside_a_query_add_all_their_rows(spark: SparkSession, path: str, tmp_path: Path) -> None:
    add(path, range(10), 0)
    target = str(tmp_path / "target")

    def halves(rows: DataFrame, _: int) -> None:
        placed = rows.selectExpr("'t' AS topic", "0 AS partition", "id AS offset")
        for condition in ("offset % 2 = 1", "offset % 2 = 0"):
            writer = placed.where(condition).write.format(LAKE).mode("append")
            writer.option("onOverlap", "skip").save(target)

    writer = spark.readStream.format(LAKE).load(path).writeStream.foreachBatch(halves)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()

    assert sorted(DeltaTable(target).to_pyarrow_table()["offset"].to_pylist()) == list(range(10))


def test_rows_that_cannot_fit_are_refused_before_anything_is_written(spark: SparkSession, path: str) -> None:
    spark.range(3).write.format(LAKE).mode("append").save(path)
    text: DataFrame = spark.sql("SELECT 'x' AS id")

    with pytest.raises(AnalysisException, match="column id is int64 there and string in the rows"):
        text.write.format(LAKE).mode("append").save(path)


def test_a_table_that_is_not_there_is_one_clear_error(spark: SparkSession, path: str) -> None:
    with pytest.raises(AnalysisException, match="there is no Delta table"):
        spark.read.format(LAKE).load(path)


def test_a_stream_writes_an_iceberg_table(spark: SparkSession, path: str, tmp_path: Path) -> None:
    add(path, range(10), 0)
    (tmp_path / "warehouse").mkdir()
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    options = {f"catalog.{name}": value for name, value in catalog.items()}
    rows = spark.readStream.format(LAKE).load(path).selectExpr("id", "id % 2 AS odd")
    writer = rows.writeStream.format(LAKE).options(tableFormat="iceberg", partitionColumns="odd", **options)

    for _ in range(2):
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start("metrics.copy").awaitTermination()

    written = load_catalog("penstock", **catalog).load_table("metrics.copy").scan().to_arrow()
    assert sorted(written["id"].to_pylist()) == list(range(10))
