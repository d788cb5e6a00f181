"""Thirty-five examples of the guide to Spark's own Kafka connector, written once for both formats.

An example is a function of a `Bench`, which knows the format's name and nothing else about it. What it
returns is JSON that is the same wherever the example behaves the same.
"""

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.client import BulkProducer, Endpoint, SingleRecord, TopicAdmin
from tests.support.clusters import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIRST_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
ROWS = 20
WAIT_SECONDS = 150

Outcome = Any
_numbers_of_names = itertools.count(1)


def fresh() -> str:
    """A name that nobody else has."""
    return f"{os.getpid()}x{next(_numbers_of_names)}"


class NoEnd(Exception):
    """A query did not get to where the example ends."""


@dataclass
class Bench:
    """A session, a broker with two topics in it, and the format that an example is run with."""

    spark: "SparkSession"
    form: str
    servers: str
    directory: Path

    @classmethod
    def prepare(cls, servers: str) -> None:
        """`first` has twenty records in two partitions, a second apart; `second` has four."""
        admin = TopicAdmin(Endpoint(servers))
        for topic, count in (("guide-first", ROWS), ("guide-second", 4)):
            admin.create(topic, 2, 1, KEPT)
            sender = BulkProducer(Endpoint(servers))
            sender.send_each(topic, (_record(number) for number in range(count)))
            sender.finish()

    def topic(self, records: int = 0) -> str:
        """A topic of its own for an example that writes."""
        name = f"guide-{fresh()}"
        TopicAdmin(Endpoint(self.servers)).create(name, 2, 1, KEPT)
        self.send(name, records)
        return name

    def send(self, topic: str, count: int) -> None:
        if count:
            sender = BulkProducer(Endpoint(self.servers))
            sender.send_each(topic, (_record(number) for number in range(count)))
            sender.finish()

    def read(self, **options: str) -> "DataFrame":
        frame: DataFrame = self._with(self.spark.read, options).load()
        return frame

    def stream(self, **options: str) -> "DataFrame":
        frame: DataFrame = self._with(self.spark.readStream, options).load()
        return frame

    def _with(self, reader: Any, options: dict[str, str]) -> Any:
        reader = reader.format(self.form).option("kafka.bootstrap.servers", self.servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader

    def into_topic(self, writer: Any, **options: str) -> Any:
        writer = writer.format(self.form).option("kafka.bootstrap.servers", self.servers)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        return writer

    def checkpoint(self) -> str:
        return str(self.directory / fresh())

    def run(self, frame: "DataFrame", mode: str = "append", **trigger: Any) -> tuple["StreamingQuery", str]:
        """Run a query into a table in memory until it has read everything."""
        name = f"q{fresh()}"
        writer = frame.writeStream.format("memory").queryName(name).outputMode(mode)
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        if not trigger and not query.awaitTermination(WAIT_SECONDS):
            query.stop()
            raise NoEnd
        return query, name

    def rows(self, frame: "DataFrame") -> list[str]:
        """What a streaming frame gives."""
        _, name = self.run(frame)
        return texts(self.spark.table(name))

    def contents(self, topic: str) -> list[str]:
        """What is in a topic, read back with the same format."""
        rows = self.read(subscribe=topic, kafka__isolation__level="read_committed")
        return texts(rows.selectExpr("cast(key as string)", "cast(value as string)"))


def _record(number: int) -> SingleRecord:
    return SingleRecord(
        b"v%d" % number, b"k%d" % number, number % 2, FIRST_MS + 1_000 * number, [("n", b"h%d" % number)]
    )


def texts(frame: "DataFrame") -> list[str]:
    """The rows of a frame, whatever their order."""
    return sorted("|".join(map(str, row)) for row in frame.collect())


PLACES = ("topic", "partition", "offset")
WORDS = ("cast(key as string)", "cast(value as string)")


def places(frame: "DataFrame") -> list[str]:
    return texts(frame.select(*PLACES))


def fails(run: Callable[[], Any]) -> str:
    """Whether it fails, whatever it says."""
    try:
        run()
    except NoEnd:
        raise
    except Exception:
        return "fails"
    return "works"


EXAMPLES: dict[str, Callable[[Bench], Outcome]] = {}


def example(function: Callable[[Bench], Outcome]) -> Callable[[Bench], Outcome]:
    EXAMPLES[function.__name__] = function
    return function


# Creating a source for streaming queries


@example
def subscribe_to_a_topic(bench: Bench) -> Outcome:
    return bench.rows(bench.stream(subscribe="guide-second", startingOffsets="earliest").selectExpr(*WORDS))


@example
def subscribe_with_headers(bench: Bench) -> Outcome:
    frame = bench.stream(subscribe="guide-second", startingOffsets="earliest", includeHeaders="true")
    return bench.rows(frame.selectExpr(*WORDS, "headers[0].key", "cast(headers[0].value as string)"))


@example
def subscribe_to_several_topics(bench: Bench) -> Outcome:
    frame = bench.stream(subscribe="guide-first,guide-second", startingOffsets="earliest")
    return bench.rows(frame.select(*PLACES))


@example
def subscribe_to_a_pattern(bench: Bench) -> Outcome:
    frame = bench.stream(subscribePattern="guide-(first|sec.*)", startingOffsets="earliest")
    return bench.rows(frame.select(*PLACES))


@example
def a_stream_starts_at_the_end(bench: Bench) -> Outcome:
    return bench.rows(bench.stream(subscribe="guide-first").select(*PLACES))


# Creating a source for batch queries


@example
def batch_of_a_topic(bench: Bench) -> Outcome:
    return texts(bench.read(subscribe="guide-second").selectExpr(*WORDS))


@example
def batch_with_explicit_offsets(bench: Bench) -> Outcome:
    return places(
        bench.read(
            subscribe="guide-first,guide-second",
            startingOffsets=json.dumps({"guide-first": {"0": 7, "1": -2}, "guide-second": {"0": -2, "1": 1}}),
            endingOffsets=json.dumps({"guide-first": {"0": 9, "1": 2}, "guide-second": {"0": -1, "1": -1}}),
        )
    )


@example
def batch_of_a_pattern(bench: Bench) -> Outcome:
    return places(
        bench.read(subscribePattern="guide-sec.*", startingOffsets="earliest", endingOffsets="latest")
    )


@example
def columns_of_a_topic(bench: Bench) -> Outcome:
    one = bench.read(subscribe="guide-second").schema
    more = bench.read(subscribe="guide-second", includeHeaders="true").schema
    rows = bench.read(subscribe="guide-second").select("offset", "timestamp", "timestampType")
    return [one.simpleString(), more.simpleString(), texts(rows)]


# Options of the source


@example
def assigned_partitions(bench: Bench) -> Outcome:
    return places(bench.read(assign=json.dumps({"guide-first": [1], "guide-second": [0]})))


@example
def one_way_to_choose_topics(bench: Bench) -> Outcome:
    return [
        fails(lambda: bench.read(subscribe="guide-first", subscribePattern="guide.*").collect()),
        fails(lambda: bench.read().collect()),
        fails(lambda: bench.read(subscribe="").collect()),
        fails(
            lambda: bench.read(
                subscribe="guide-first", startingOffsets=json.dumps({"guide-first": {"0": 3}})
            ).collect()
        ),
    ]


@example
def timestamps_for_both_ends(bench: Bench) -> Outcome:
    first, last = FIRST_MS + 15_000, FIRST_MS + 18_000
    starts = json.dumps({"guide-first": {"0": FIRST_MS + 12_000, "1": FIRST_MS + 1}})
    ends = json.dumps({"guide-first": {"0": FIRST_MS + 14_000, "1": FIRST_MS + 4_500}})
    return [
        places(bench.read(subscribe="guide-first", startingTimestamp=str(first), endingTimestamp=str(last))),
        places(
            bench.read(
                subscribe="guide-first", startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends
            )
        ),
    ]


@example
def a_timestamp_after_the_last_record(bench: Bench) -> Outcome:
    late = str(FIRST_MS + 1_000_000)

    def read(**more: str) -> list[str]:
        frame = bench.stream(subscribe="guide-first", startingTimestamp=late, **more)
        return bench.rows(frame.select(*PLACES))

    return [fails(read), read(startingOffsetsByTimestampStrategy="latest")]


@example
def ends_that_make_no_sense(bench: Bench) -> Outcome:
    return [
        fails(lambda: bench.rows(bench.stream(subscribe="guide-first", endingOffsets="latest"))),
        fails(lambda: bench.read(subscribe="guide-first", startingOffsets="latest").collect()),
        fails(lambda: bench.read(subscribe="guide-first", endingOffsets="earliest").collect()),
    ]


@example
def a_batch_that_ends_beyond_the_end(bench: Bench) -> Outcome:
    def read(lose: str) -> int:
        ends = json.dumps({"guide-second": {"0": 9, "1": 1}})
        return bench.read(
            subscribe="guide-second",
            endingOffsets=ends,
            failOnDataLoss=lose,
            # The connector waits so long for records that are not there, and tries a few times.
            kafkaConsumer__pollTimeoutMs="300",
            retryTimeoutMs="300",
        ).count()

    return [fails(lambda: read("true")), read("false")]


@example
def a_batch_that_starts_out_of_range(bench: Bench) -> Outcome:
    def read(lose: str) -> int:
        starts = json.dumps({"guide-second": {"0": 9, "1": 1}})
        return bench.read(subscribe="guide-second", startingOffsets=starts, failOnDataLoss=lose).count()

    return [fails(lambda: read("true")), fails(lambda: read("false"))]


@example
def a_stream_that_starts_out_of_range(bench: Bench) -> Outcome:
    def read(lose: str) -> list[str]:
        starts = json.dumps({"guide-second": {"0": 9, "1": 1}})
        frame = bench.stream(subscribe="guide-second", startingOffsets=starts, failOnDataLoss=lose)
        return bench.rows(frame.select(*PLACES))

    return [fails(lambda: read("true")), read("false")]


@example
def settings_of_consumers(bench: Bench) -> Outcome:
    return bench.read(
        subscribe="guide-second",
        kafkaConsumer__pollTimeoutMs="10000",
        fetchOffset__numRetries="5",
        fetchOffset__retryIntervalMs="100",
        groupIdPrefix="mine",
        kafka__group__id="a-group",
        kafka__max__poll__records="1",
        kafka__fetch__max__wait__ms="100",
        kafka__session__timeout__ms="45000",
        kafka__request__timeout__ms="60000",
        kafka__client__id="somebody",
    ).count()


@example
def refused_settings(bench: Bench) -> Outcome:
    settings = {
        "kafka__auto__offset__reset": "earliest",
        "kafka__enable__auto__commit": "true",
        "kafka__interceptor__classes": "a.B",
        "kafka__key__deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    }
    return [
        fails(lambda one=one: bench.read(subscribe="guide-second", **dict([one])).collect())  # type: ignore[misc]
        for one in settings.items()
    ]


def _sizes(query: "StreamingQuery") -> list[int]:
    return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]


@example
def max_offsets_per_trigger(bench: Bench) -> Outcome:
    query, _ = bench.run(
        bench.stream(subscribe="guide-first", startingOffsets="earliest", maxOffsetsPerTrigger="6")
    )
    return _sizes(query)


@example
def min_offsets_per_trigger(bench: Bench) -> Outcome:
    """Twenty are enough at once; four more have to wait until the delay is over."""
    topic = bench.topic(ROWS)
    query, _ = bench.run(
        bench.stream(
            subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="3s"
        ),
        processingTime="0 seconds",
    )
    try:
        _await(query, ROWS)
        bench.send(topic, 4)
        _await(query, ROWS + 4)
        return _sizes(query)
    finally:
        query.stop()


@example
def min_and_max_offsets_per_trigger(bench: Bench) -> Outcome:
    query, _ = bench.run(
        bench.stream(
            subscribe="guide-first",
            startingOffsets="earliest",
            minOffsetsPerTrigger="4",
            maxOffsetsPerTrigger="8",
            maxTriggerDelay="1s",
        ),
        processingTime="0 seconds",
    )
    try:
        _await(query, ROWS)
        return _sizes(query)
    finally:
        query.stop()


def _await(query: "StreamingQuery", rows: int) -> None:
    until(lambda: sum(_sizes(query)) >= rows or not query.isActive, f"{rows} rows are read", WAIT_SECONDS)


def _tasks(frame: "DataFrame") -> list[str]:
    from pyspark.sql import functions as f

    found = frame.groupBy(f.spark_partition_id().alias("task"), "topic", "partition")
    spans = found.agg(f.min("offset").alias("first"), f.max("offset").alias("last"))
    return texts(spans.select("topic", "partition", "first", "last"))


@example
def min_partitions(bench: Bench) -> Outcome:
    return {
        wanted: _tasks(bench.read(subscribe="guide-first,guide-second", minPartitions=wanted))
        for wanted in ("2", "5", "7", "13")
    }


@example
def max_records_per_partition(bench: Bench) -> Outcome:
    return _tasks(bench.read(subscribe="guide-first", maxRecordsPerPartition="4"))


@example
def an_unknown_topic(bench: Bench) -> Outcome:
    """Whether the error's first line says which one it is."""

    def named(run: Callable[[], Any]) -> bool:
        try:
            run()
        except Exception as error:
            return "guide-nobody" in str(error).splitlines()[0]
        return False

    return [
        named(lambda: bench.read(subscribe="guide-nobody").collect()),
        named(lambda: bench.rows(bench.stream(subscribe="guide-nobody"))),
    ]


@example
def progress_of_a_query(bench: Bench) -> Outcome:
    query, _ = bench.run(
        bench.stream(subscribe="guide-first", startingOffsets="earliest", maxOffsetsPerTrigger="12")
    )
    source = json.loads(query.recentProgress[0].json)["sources"][0]
    plain = {
        name: {topic: value for topic, value in source[name].items() if "@" not in topic}
        for name in ("endOffset", "latestOffset")
    }
    return plain | {"startOffset": source["startOffset"], "metrics": source.get("metrics")}


# Writing


@example
def stream_into_a_topic(bench: Bench) -> Outcome:
    topic = bench.topic()
    frame = bench.stream(subscribe="guide-second", startingOffsets="earliest").selectExpr(*_NAMED)
    _write_stream(bench, frame.writeStream, topic=topic)
    return bench.contents(topic)


@example
def stream_into_topics_of_a_column(bench: Bench) -> Outcome:
    topics = bench.topic(), bench.topic()
    frame = bench.stream(subscribe="guide-second", startingOffsets="earliest")
    named = f"case when partition = 0 then '{topics[0]}' else '{topics[1]}' end topic"
    _write_stream(bench, frame.selectExpr(*_NAMED, named).writeStream)
    return [bench.contents(topic) for topic in topics]


_NAMED = ("cast(key as string) key", "cast(value as string) value")


def _write_stream(bench: Bench, writer: Any, **options: str) -> None:
    writer = bench.into_topic(writer, checkpointLocation=bench.checkpoint(), **options)
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(WAIT_SECONDS):
        query.stop()
        raise NoEnd


@example
def updated_counts_into_a_topic(bench: Bench) -> Outcome:
    topic = bench.topic()
    frame = bench.stream(subscribe="guide-first", startingOffsets="earliest", maxOffsetsPerTrigger="10")
    counted = frame.groupBy("partition").count()
    named = counted.selectExpr("cast(partition as string) key", "cast(count as string) value")
    _write_stream(bench, named.writeStream.outputMode("update"), topic=topic)
    return bench.contents(topic)


def _numbers(bench: Bench, *more: str) -> "DataFrame":
    return bench.spark.range(4).selectExpr("concat('k', id) key", "concat('v', id) value", *more)


@example
def batch_into_a_topic(bench: Bench) -> Outcome:
    topic = bench.topic()
    bench.into_topic(_numbers(bench).write, topic=topic).save()
    return bench.contents(topic)


@example
def batch_into_topics_of_a_column(bench: Bench) -> Outcome:
    topics = bench.topic(), bench.topic()
    named = f"case when id < 3 then '{topics[0]}' else '{topics[1]}' end topic"
    bench.into_topic(_numbers(bench, named).write).mode("append").save()
    return [bench.contents(topic) for topic in topics]


@example
def partitions_and_headers_of_columns(bench: Bench) -> Outcome:
    topic = bench.topic()
    header = "array(named_struct('key', 'n', 'value', cast(concat('h', id) as binary))) headers"
    frame = _numbers(bench, "cast(id % 2 as int) partition", header)
    bench.into_topic(frame.write, topic=topic).mode("append").save()
    rows = bench.read(subscribe=topic, includeHeaders="true")
    return texts(rows.selectExpr("partition", *WORDS, "cast(headers[0].value as string)"))


@example
def columns_that_nobody_asked_for(bench: Bench) -> Outcome:
    topic = bench.topic()
    frame = _numbers(bench, "id", "struct(id, 'x') more")
    return [
        fails(lambda: bench.into_topic(frame.write, topic=topic).mode("append").save()),
        bench.contents(topic),
    ]


@example
def settings_of_producers(bench: Bench) -> Outcome:
    topic = bench.topic()
    bench.into_topic(
        _numbers(bench).write,
        topic=topic,
        kafka__acks="1",
        kafka__retries="3",
        kafka__linger__ms="5",
        kafka__batch__size="1000",
        kafka__compression__type="zstd",
        kafka__max__request__size="500000",
        kafka__buffer__memory="33554432",
        kafka__max__block__ms="30000",
        kafka__delivery__timeout__ms="60000",
        kafka__request__timeout__ms="20000",
        kafka__enable__idempotence="false",
        kafka__max__in__flight__requests__per__connection="1",
    ).mode("append").save()
    return bench.contents(topic)


@example
def frames_that_are_no_records(bench: Bench) -> Outcome:
    topic = bench.topic()

    def write(*columns: str, **options: str) -> str:
        frame = bench.spark.range(2).selectExpr(*columns)
        return fails(lambda: bench.into_topic(frame.write, **options).mode("append").save())

    return [
        write("'v' value"),
        write("id key", "'v' value", topic=topic),
        write("'k' key", topic=topic),
        write("'v' value", "cast(null as string) topic"),
        write("'v' value", "'x' partition", topic=topic),
    ]
