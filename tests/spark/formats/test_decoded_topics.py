"""valueFormat through Spark, from a real topic."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import BulkProducer, Endpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOOD = b'{"name":"cpu","value":%d.5,"labels":{"host":"a"},"timestamp":1700000000000,"client":"c"}'
DDL = "name STRING, value DOUBLE, labels MAP<STRING, STRING>, timestamp TIMESTAMP, tags ARRAY<STRUCT<a: INT>>"


def fill(servers: str, topic: str, values: Sequence[bytes | None]) -> None:
    sender = BulkProducer(Endpoint(servers))
    sender.send(topic, values, [b"%d" % number for number in range(len(values))])
    sender.finish()


def test_a_topic_is_read_as_columns_and_bad_values_say_why(
    spark: "SparkSession", servers: str, topic: str
) -> None:
    fill(servers, topic, [*(GOOD % number for number in range(100)), b"broken", b'{"value":"x"}', None])
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}

    frame = spark.read.format("penstock").options(**options, valueFormat="json", valueSchema=DDL).load()

    good = frame.where("_error is null and value is not null").select("value.*", "offset", "key", "timestamp")
    bad = frame.where("_error is not null").selectExpr("cast(_raw as string) raw", "_error", "value")
    row = good.orderBy("value").first()
    assert good.count() == 100
    assert row is not None
    assert (row["name"], row["value"], row["labels"], row["tags"]) == ("cpu", 0.5, {"host": "a"}, None)
    assert {(one["raw"], one["value"]) for one in bad.collect()} == {
        ("broken", None),
        ('{"value":"x"}', None),
    }
    assert frame.where("value is null and _error is null and _raw is null").count() == 1


def run_once(frame: "DataFrame", checkpoint: str, name: str) -> None:
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_stream_infers_its_columns_once_and_keeps_them(
    spark: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    fill(servers, topic, [GOOD % number for number in range(10)])
    kept = tmp_path / "columns.ddl"
    reader = (
        spark.readStream.format("penstock")
        .options(
            subscribe=topic, startingOffsets="earliest", valueFormat="json", valueSchemaLocation=str(kept)
        )
        .option("kafka.bootstrap.servers", servers)
    )
    first = reader.load()
    fill(servers, topic, [b'{"name":1,"new":true}', b'{"name":"late","value":1}'])

    again = reader.load()
    run_once(again, str(tmp_path / "checkpoint"), f"decoded_{topic.replace('-', '_')}")

    rows = spark.table(f"decoded_{topic.replace('-', '_')}").collect()
    assert first.schema == again.schema
    assert kept.read_text().startswith("client STRING, labels STRUCT<host: STRING>, name STRING")
    assert len(rows) == 12
    assert [row["_raw"] for row in rows if row["_error"]] == [bytearray(b'{"name":1,"new":true}')]


def test_columns_that_cannot_be_are_one_clear_error(spark: "SparkSession", servers: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "valueFormat": "json"}

    with pytest.raises(Exception, match="option valueSchema: a: 'wibble' is no type"):
        spark.read.format("penstock").options(**options, valueSchema="a WIBBLE").load()
    with pytest.raises(Exception, match="cannot be inferred: the topic holds no JSON object"):
        spark.read.format("penstock").options(**options, valueSchema="infer").load()
