"""`format("penstock")` as a sink, through Spark."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import ConsumedRecord, ConsumerOptions, Endpoint, TopicAdmin, TopicConsumer
from penstock.core.records import murmur2_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def everything(servers: str, topic: str) -> list[ConsumedRecord]:
    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions()) as reader:
        return [read for batch in reader.batches() for read in batch]


def write(frame: "DataFrame", servers: str, **options: str) -> None:
    writer = frame.write.format("penstock").mode("append").option("kafka.bootstrap.servers", servers)
    writer.options(**options).save()


def test_a_frame_with_every_column_arrives_as_it_is(spark: "SparkSession", servers: str, topic: str) -> None:
    frame = spark.range(1_000).selectExpr(
        "cast(id as string) key",
        "case when id = 7 then null else cast(concat('v', id) as binary) end value",
        f"'{topic}' topic",
        "cast(case when id % 3 = 0 then id % 2 end as int) partition",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) headers",
        "timestamp_millis(id) timestamp",
        "'left alone' other",
    )

    write(frame, servers)

    reads = {int(read.key or b""): read for read in everything(servers, topic)}
    assert sorted(reads) == list(range(1_000))
    for number, read in reads.items():
        expected = number % 2 if number % 3 == 0 else murmur2_partition(read.key or b"", 2)
        assert read.partition == expected
        assert read.value == (None if number == 7 else b"v%d" % number)
        assert list(read.headers) == [("n", b"%d" % number)]
        assert read.timestamp_ms == number or number == 0


def test_the_option_topic_wins_over_the_column(spark: "SparkSession", servers: str, topic: str) -> None:
    write(spark.range(10).selectExpr("cast(id as string) value", "'elsewhere' topic"), servers, topic=topic)

    assert len(everything(servers, topic)) == 10
    assert "elsewhere" not in {one.name for one in TopicAdmin(Endpoint(servers)).list()}


def test_a_stream_from_one_topic_into_another_goes_on_where_it_stopped(
    spark: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-copy"
    TopicAdmin(Endpoint(servers)).create(target, 2, 1, {})
    rounds = 2
    for number in range(rounds):
        write(spark.range(500).selectExpr(f"concat({number}, '/', id) value"), servers, topic=topic)
        frame = spark.readStream.format("penstock").options(subscribe=topic, startingOffsets="earliest")
        query = (
            frame.option("kafka.bootstrap.servers", servers)
            .load()
            .select("key", "value")
            .writeStream.format("penstock")
            .options(topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .option("kafka.bootstrap.servers", servers)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    values = [read.value for read in everything(servers, target)]
    assert Counter(values) == Counter(read.value for read in everything(servers, topic))
    assert len(set(values)) == rounds * 500


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        (["id"], {}, "there is no column value; there is no column topic"),
        (["cast(id as string) value"], {}, "set the option topic or add the column"),
        (["id value"], {"topic": "t"}, "column value is int64, not string or binary"),
        (["cast(id as string) value"], {"topic": "no such/name"}, "topic no such/name at .*nvalid topic"),
        (["cast(id as string) value", "cast(null as string) topic"], {}, "a row has no topic"),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(
    spark: "SparkSession", servers: str, columns: list[str], options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(Exception, match=complaint):
        write(spark.range(3).selectExpr(*columns), servers, **options)
