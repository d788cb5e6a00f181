"""`spark.read.format("penstock")`: what was produced is what is read."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from penstock.client import Endpoint, GroupAdmin, TopicAdmin
from tests.spark.source.topics import numbered, produce


def read(spark: SparkSession, servers: str, **options: Any) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", servers)
    return reader.options(**options).load()


def test_every_column_of_a_record_is_as_it_was_produced(
    spark: SparkSession, servers: str, topic: str
) -> None:
    headers = [("origin", b"x"), ("none", None)]
    produce(servers, topic, ["one"], 1, key=b"k", timestamp=1_700_000_000_123, headers=headers)
    produce(servers, topic, [*numbered(0, 3)])

    rows = read(spark, servers, subscribe=topic, includeHeaders=True).orderBy("partition", "offset").collect()

    assert [(row.partition, row.offset, bytes(row.value)) for row in rows] == [
        (0, 0, b"v0"),
        (0, 1, b"v1"),
        (0, 2, b"v2"),
        (1, 0, b"one"),
    ]
    last = rows[-1].asDict(recursive=True)
    assert last.pop("timestamp") == datetime.fromtimestamp(1_700_000_000.123)  # noqa: DTZ006
    assert last == {
        "key": b"k",
        "value": b"one",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "origin", "value": b"x"}, {"key": "none", "value": None}],
    }
    assert rows[0].key is None
    assert rows[0].headers in (None, [])


def test_a_batch_reads_between_the_offsets_or_the_times_it_is_given(
    spark: SparkSession, servers: str, topic: str
) -> None:
    for number in range(10):
        produce(servers, topic, [f"v{number}"], timestamp=1_000 + number)

    def values(**options: Any) -> list[str]:
        frame = read(spark, servers, subscribe=topic, **options).orderBy("offset")
        return [bytes(row.value).decode() for row in frame.collect()]

    offsets = values(
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 6, "1": -1}}),
    )
    times = values(
        startingTimestamp=1_004, endingTimestamp=1_007, startingOffsetsByTimestampStrategy="latest"
    )
    assert offsets == ["v3", "v4", "v5"]
    assert times == ["v4", "v5", "v6"]


def test_a_pattern_or_an_assignment_chooses_partitions(spark: SparkSession, servers: str, topic: str) -> None:
    produce(servers, topic, numbered(0, 2), 0)
    produce(servers, topic, numbered(2, 5), 1)

    assert read(spark, servers, subscribePattern=f"{topic[:-1]}.").count() == 5
    assert read(spark, servers, assign=json.dumps({topic: [1]})).count() == 3
    assert read(spark, servers, subscribePattern="no-such-.*").count() == 0


def test_a_partition_is_cut_into_as_many_tasks_as_wanted_and_a_group_is_left_alone(
    spark: SparkSession, servers: str, topic: str
) -> None:
    produce(servers, topic, numbered(0, 90))
    produce(servers, topic, numbered(0, 10), 1)

    frame = read(spark, servers, subscribe=topic, minPartitions=5, group=f"group-{topic}")
    tasks = {
        row.task: row["count"] for row in frame.groupBy(spark_partition_id().alias("task")).count().collect()
    }

    assert len(tasks) == 5
    assert sum(tasks.values()) == 100
    assert max(tasks.values()) < 30
    assert GroupAdmin(Endpoint(servers)).committed(f"group-{topic}") == {}


def test_values_are_decoded_to_columns_and_those_that_cannot_be_are_kept(
    spark: SparkSession, servers: str, topic: str
) -> None:
    produce(servers, topic, ['{"name": "cpu", "load": 0.5}', "{oops", '{"name": "cpu", "load": 2.5}'])

    named = read(spark, servers, subscribe=topic, valueFormat="json", valueSchema="name STRING, load DOUBLE")
    inferred = read(spark, servers, subscribe=topic, valueFormat="json", valueSchema="infer")

    for frame in (named, inferred):
        rows = frame.select("offset", "value.*", "_raw").orderBy("offset").collect()
        assert [(row.name, row.load, row._raw) for row in rows] == [
            ("cpu", 0.5, None),
            (None, None, b"{oops"),
            ("cpu", 2.5, None),
        ]
        assert frame.where("_error is not null").count() == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "option subscribe: is required"),
        ({"subscribe": "x", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "x", "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
    ],
)
def test_a_wrong_option_is_told_when_the_source_is_loaded(
    spark: SparkSession, servers: str, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(AnalysisException) as refusal:
        read(spark, servers, **options)

    assert complaint in str(refusal.value)


def test_what_only_the_broker_knows_is_told_when_the_query_is_planned(
    spark: SparkSession, servers: str, topic: str
) -> None:
    produce(servers, topic, numbered(0, 2))
    wrong = [
        ({"subscribe": "no-such-topic"}, "option subscribe: topic no-such-topic does not exist"),
        ({"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1}}}}'}, f"{topic}/1 is missing"),
        (
            {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 9, "1": 0}}}}'},
            f"{topic}/0: offset 9 is not in the log, which has 0 to 2",
        ),
    ]

    for options, complaint in wrong:
        with pytest.raises((AnalysisException, PythonException)) as refusal:
            read(spark, servers, **options).collect()
        assert complaint in str(refusal.value)
    assert "no-such-topic" not in [one.name for one in TopicAdmin(Endpoint(servers)).list()]


LOOKING = """
import pkgutil, sys
assert "pyspark_penstock" in [module.name for module in pkgutil.iter_modules()]
import pyspark_penstock
print(pyspark_penstock.DefaultSource.name(), *[name for name in sys.modules if name.startswith("penstock.")])
"""
# What every method of the format needs before it does anything.
ALWAYS_NEEDED = (
    "penstock.spark penstock.core penstock.core.values penstock.core.model "
    "penstock.spark.errors penstock.spark.orphan"
)


def test_spark_finds_the_format_by_itself_and_finding_it_loads_nothing_of_the_pipeline(
    tmp_path: Path,
) -> None:
    # Every test here reads without having registered anything; this is how Spark looks.
    done = subprocess.run(
        [sys.executable, "-c", LOOKING], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )

    assert done.stdout.strip() == f"penstock {ALWAYS_NEEDED}", done.stderr
