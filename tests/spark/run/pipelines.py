"""Pipelines for the tests of the runner: they count records, and one fails on demand."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import DataLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Reading:
    """Reads a topic to its end and throws it away; at a record that says so, it fails."""

    summary = "read a topic"

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> dict[str, str]:
        return dict(overrides)

    def start(
        self, spark: "SparkSession", config: dict[str, str], *, once: bool = False
    ) -> Iterator["StreamingQuery"]:
        rows = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", config["bootstrap"])
            .option("subscribe", config["topic"])
            .option("startingOffsets", "earliest")
            .load()
        )

        def checked(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                if b"poison" in batch.column("value").to_pylist():
                    raise DataLost("the-topic", 1, 5, 9)
                yield batch

        writer = (
            rows.mapInArrow(checked, rows.schema)
            .writeStream.format("noop")
            .queryName("reading")
            .option("checkpointLocation", str(self.checkpoint(config) / "reading"))
        )
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "100 milliseconds"}
        yield writer.trigger(**trigger).start()

    def checkpoint(self, config: dict[str, str]) -> Path:
        return Path(config["state_dir"]) / "checkpoints"

    def connection(self, config: dict[str, str]) -> dict[str, str]:
        return {"bootstrap.servers": config["bootstrap"]}

    def identity(self, config: dict[str, str]) -> dict[str, str]:
        return {"topic": config["topic"]}

    def drops_nothing(self, config: dict[str, str]) -> dict[str, str]:
        return {}


class Counting:
    """A job that counts the records of a topic."""

    summary = "count a topic's records"

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> dict[str, str]:
        return dict(overrides)

    def run(self, spark: "SparkSession", config: dict[str, str]) -> dict[str, object]:
        rows = (
            spark.read.format("penstock")
            .option("kafka.bootstrap.servers", config["bootstrap"])
            .option("subscribe", config["topic"])
            .load()
        )
        return {"topic": config["topic"], "records": rows.count(), "master": spark.sparkContext.master}


READING = Reading()
COUNTING = Counting()
