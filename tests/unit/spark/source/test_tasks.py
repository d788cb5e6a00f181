"""What tasks get, and the columns they return."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.spark.errors import PipelineError
from penstock.spark.reading import OffsetRange
from penstock.spark.source import columns, task_reading
from penstock.spark.source.tasks import TopicInputPartition

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
CONNECTORS = (
    "key binary,value binary,topic string,partition int,offset bigint,timestamp timestamp,timestampType int"
)


def test_the_columns_are_the_official_connectors() -> None:
    plain, with_headers = columns(GIVEN), columns(GIVEN | {"includeHeaders": "true"})

    assert plain.simpleString() == f"struct<{CONNECTORS.replace(' ', ':')}>"
    assert with_headers[-1].simpleString() == "headers:array<struct<key:string,value:binary>>"


def test_decoded_values_are_a_struct_beside_what_tells_of_bad_ones() -> None:
    given = GIVEN | {"valueFormat": "json", "valueSchema": "name STRING"}

    found = columns(given)

    assert found["value"].dataType == StructType().add("name", StringType())
    assert found.names[-2:] == ["_error", "_raw"]
    assert task_reading(given, found).decoding is not None
    assert task_reading(given).decoding is None


def test_columns_of_the_users_own_are_refused() -> None:
    with pytest.raises(
        PipelineError, match=r"the columns of a topic are struct<key:binary.*leave out .schema"
    ):
        task_reading(GIVEN, StructType().add("value", StringType()))
    with pytest.raises(PipelineError, match="with valueFormat the column value is a struct"):
        task_reading(
            GIVEN | {"valueFormat": "json", "valueSchema": "name STRING"},
            StructType().add("value", BinaryType()),
        )


def test_what_a_task_is_told_travels() -> None:
    given = GIVEN | {"valueFormat": "json", "valueSchema": "name STRING", "failOnDataLoss": "false"}
    reading = task_reading(given, columns(given))
    task = TopicInputPartition(OffsetRange("a", 0, 3, 9))

    assert pickle.loads(pickle.dumps(reading)) == reading
    assert pickle.loads(pickle.dumps(task)).span == OffsetRange("a", 0, 3, 9)
