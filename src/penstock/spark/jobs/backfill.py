"""Rows of the raw table into a topic again: for a new consumer, or for a table that is made anew.

A record gets the key it had, and so the partition if the topics are alike; its value is the
measurement as JSON, equal to what was sent but not byte for byte; headers say where it stood. The
timestamp of the record is the one it had. Rows are sent in the order in which they came, so that
they are no later than they were, whatever compaction did to the table. Sending twice does
no harm to a reader that drops repeats by client, series and timestamp.
"""

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.spark.errors import SparkOptionError
from penstock.spark.jobs.settings import configured
from penstock.spark.metrics.configuration import BackfillSection, MetricsConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

RECORDS_DDL = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"
)
TURNS_PER_SECOND = 10


class BackfillJob:
    """Lake to topic."""

    summary = "send rows of the raw table to a topic again"

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> MetricsConfig:
        config = configured("backfill", BackfillSection, path, overrides)
        if not config.backfill.topic:
            raise SparkOptionError("backfill.topic", "say which topic the rows go to")
        for key in ("start", "end"):
            _moment(f"backfill.{key}", getattr(config.backfill, key))
        return config

    def run(self, spark: "SparkSession", config: MetricsConfig) -> Mapping[str, Any]:
        """How many records were sent and confirmed."""
        asked = config.backfill
        rows = chosen(spark, config)
        count = rows.count()
        # One task: several would send early and late rows side by side, and whoever reads them with a
        # watermark would find most of the early ones too late.
        ordered = rows.orderBy("recorded", "partition", "offset").coalesce(1)
        records = ordered.mapInArrow(PacedRecords(asked.records_per_second), RECORDS_DDL)
        records.write.format("penstock").mode("append").options(
            **config.kafka_options, topic=asked.topic, delivery=config.delivery
        ).save()
        return {"table": config.raw_table, "topic": asked.topic, "records": count}


def chosen(spark: "SparkSession", config: MetricsConfig) -> "DataFrame":
    """The rows between `start` and `end`, of the table as it is now however long the job takes."""
    import pyspark.sql.functions as sf

    from penstock.spark.lake import table_options
    from penstock.spark.lake.source import table_at

    version = table_at(table_options({"path": config.raw_table})).version()
    rows = spark.read.format("penstock-lake").option("versionAsOf", version).load(config.raw_table)
    start = _moment("backfill.start", config.backfill.start)
    end = _moment("backfill.end", config.backfill.end)
    if start is not None:
        rows = rows.where((sf.col("timestamp") >= sf.lit(start)) & (sf.col("date") >= sf.lit(start.date())))
    if end is not None:
        rows = rows.where((sf.col("timestamp") < sf.lit(end)) & (sf.col("date") <= sf.lit(end.date())))
    return rows


def _moment(key: str, text: str) -> dt.datetime | None:
    if not text:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise SparkOptionError(key, f"{text!r} is not a time, as 2026-11-15T12:00Z is") from None
    return moment.astimezone(dt.UTC) if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


class PacedRecords:
    """What runs in a task; a class, so that it is pickled by name."""

    def __init__(self, rate: int) -> None:
        self._rate = rate

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            for part in self._paced(batch):
                yield as_records(part)

    def _paced(self, batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
        if not self._rate:
            yield batch
            return
        step = max(1, self._rate // TURNS_PER_SECOND)
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            time.sleep(part.num_rows / self._rate)
            yield part


def as_records(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Rows of the raw table as records."""
    import pyarrow as pa

    from penstock.spark.metrics.dead_letters import headers_type, origin_headers

    encode = msgspec.json.Encoder().encode
    rows = batch.to_pylist()
    values = [
        encode(
            {
                "name": row["name"],
                "value": row["value"],
                "labels": dict(row["labels"]),
                "timestamp": round(row["timestamp"].timestamp() * 1_000),
                "client": row["client"],
            }
        )
        for row in rows
    ]
    return pa.record_batch(
        {
            "key": batch.column("key").cast(pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([origin_headers(row) for row in rows], headers_type()),
            # The measurement's own time may be further ahead than a broker takes.
            "timestamp": batch.column("recorded").cast(pa.timestamp("us", tz="UTC")),
        }
    )
