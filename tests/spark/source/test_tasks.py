"""What a task reads, on a real broker; no session is needed to see it."""

import pytest
from pyspark.sql.datasource import InputPartition

from penstock.spark.errors import DataLost
from penstock.spark.reading import OffsetRange
from penstock.spark.source import task_reading
from penstock.spark.source.tasks import TopicInputPartition
from tests.spark.source.topics import delete_records, numbered, produce


def offsets(servers: str, task: InputPartition, **more: str) -> list[int]:
    reading = task_reading({"kafka.bootstrap.servers": servers, **more})
    return [offset for batch in reading.read(task) for offset in batch.column("offset").to_pylist()]


def test_a_task_reads_its_span_and_one_without_a_span_reads_nothing(servers: str, topic: str) -> None:
    produce(servers, topic, numbered(0, 10))

    assert offsets(servers, TopicInputPartition(OffsetRange(topic, 0, 3, 7))) == [3, 4, 5, 6]
    assert offsets(servers, InputPartition(None)) == []


def test_records_that_vanish_after_planning_end_the_task_or_are_stepped_over(
    servers: str, topic: str
) -> None:
    produce(servers, topic, numbered(0, 10))
    task = TopicInputPartition(OffsetRange(topic, 0, 2, 9))
    delete_records(servers, topic, before=6)

    with pytest.raises(DataLost, match=f"{topic}/0: offsets 2 to 5 are gone"):
        offsets(servers, task)

    assert offsets(servers, task, failOnDataLoss="false") == [6, 7, 8]


def test_a_span_that_is_gone_altogether_is_stepped_over_too(servers: str, topic: str) -> None:
    produce(servers, topic, numbered(0, 10))
    delete_records(servers, topic, before=8)

    assert offsets(servers, TopicInputPartition(OffsetRange(topic, 0, 2, 6)), failOnDataLoss="false") == []
