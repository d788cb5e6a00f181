"""Metrics as a declarative pipeline: what there should be, and Spark works out how to get there.

A second way in, with Penstock as one source among others: `measurements` is a table that grows with
the topic, `malformed` what is none, `rollup_1m` a view that is worked out from the first. What the
metrics pipeline does beyond that, dropping repeats and closing windows exactly once, is not here.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

if __name__ == "__main__":
    raise SystemExit(
        "run it with: spark-pipelines run --spec examples/pipeline/declarative/spark-pipeline.yml"
    )

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = os.environ.get("PENSTOCK_TOPIC", "metrics.inbound")
SHAPE = "name string, value double, labels map<string, string>, timestamp long, client string"


def parsed() -> DataFrame:
    """Records of the topic, with a null where one does not fit the shape."""
    spark = SparkSession.active()
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.select(
        "partition",
        "offset",
        "value",
        sf.from_json(sf.col("value").cast("string"), SHAPE, {"mode": "PERMISSIVE"}).alias("read"),
    )


def is_measurement() -> Column:
    """Whether everything that a measurement needs is there."""
    needed = [sf.col(f"read.{name}").isNotNull() for name in ("name", "value", "timestamp", "client")]
    return needed[0] & needed[1] & needed[2] & needed[3]


@dp.table
def measurements() -> DataFrame:
    """One row per measurement."""
    rows = parsed().where(is_measurement())
    return rows.select(
        "partition",
        "offset",
        "read.name",
        "read.value",
        "read.labels",
        sf.timestamp_millis("read.timestamp").alias("timestamp"),
        "read.client",
    )


@dp.table
def malformed() -> DataFrame:
    """The records that are none."""
    return parsed().where(~is_measurement()).select("partition", "offset", "value")


@dp.materialized_view
def rollup_1m() -> DataFrame:
    """Count, sum and percentiles by name, client and minute."""
    rows = SparkSession.active().read.table("measurements")
    return (
        rows.groupBy(sf.window("timestamp", "1 minute"), "name", "client")
        .agg(
            sf.count("value").alias("count"),
            sf.sum("value").alias("sum"),
            sf.percentile("value", 0.5).alias("p50"),
            sf.percentile("value", 0.99).alias("p99"),
        )
        .select("window.start", "name", "client", "count", "sum", "p50", "p99")
    )
