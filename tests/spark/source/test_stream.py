"""`spark.readStream.format("penstock")`: batches, restarts, and what may happen to a topic meanwhile."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client import Endpoint, GroupAdmin, TopicAdmin
from penstock.spark.source import GroupOffsets
from tests.spark.source.topics import delete_records, numbered, produce
from tests.support.nodes import NodeProcess

RUN_SECONDS = 120


class Run:
    """A streaming query on one checkpoint, which can be started again; keeps what each batch read."""

    def __init__(self, spark: SparkSession, checkpoint: str, **options: Any) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._options = options
        self.batches: list[list[str]] = []

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches for value in batch)

    def start(self, *, once: bool, **more: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("penstock").options(**self._options | more)
        writer = (
            reader.load().writeStream.foreachBatch(self._keep).option("checkpointLocation", self._checkpoint)
        )
        return (writer.trigger(availableNow=True) if once else writer).start()

    def through(self, **more: Any) -> None:
        """Read what is there."""
        self.batches.clear()
        query = self.start(once=True, **more)
        try:
            assert query.awaitTermination(RUN_SECONDS)
        finally:
            query.stop()

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        self.batches.append([bytes(row.value).decode() for row in frame.select("value").collect()])


@pytest.fixture
def run(spark: SparkSession, servers: str, topic: str, checkpoint: str) -> Run:
    return Run(
        spark,
        checkpoint,
        **{"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"},
    )


@pytest.fixture
def listening(spark: SparkSession) -> Iterator[Callable[[GroupOffsets], None]]:
    added: list[GroupOffsets] = []

    def listen(listener: GroupOffsets) -> None:
        spark.streams.addListener(listener)
        added.append(listener)

    yield listen
    for listener in added:
        spark.streams.removeListener(listener)


def test_a_run_over_what_is_there_reads_it_in_small_batches_and_the_next_one_what_came_since(
    run: Run, servers: str, topic: str, listening: Callable[[GroupOffsets], None]
) -> None:
    group = f"group-{topic}"
    offsets = GroupOffsets({"kafka.bootstrap.servers": servers, "group": group})
    listening(offsets)
    produce(servers, topic, numbered(0, 8), 0)
    produce(servers, topic, numbered(8, 10), 1)

    run.through(maxOffsetsPerTrigger=5, group=group)

    assert offsets.wait(RUN_SECONDS)
    assert sorted(len(batch) for batch in run.batches) == [5, 5]
    assert run.values == sorted(numbered(0, 10))
    lags = GroupAdmin(Endpoint(servers)).describe(group).partitions
    assert [(one.partition, one.committed, one.lag) for one in lags] == [(0, 8, 0), (1, 2, 0)]

    TopicAdmin(Endpoint(servers)).add_partitions(topic, 3)
    produce(servers, topic, ["old partition"], 0)
    produce(servers, topic, ["new partition"], 2)
    run.through()

    assert run.values == ["new partition", "old partition"]


def test_a_stream_from_the_end_reads_everything_since_then_across_restarts(
    run: Run, servers: str, topic: str
) -> None:
    options = {"startingOffsets": "latest", "minOffsetsPerTrigger": 3, "maxTriggerDelay": "1h"}
    produce(servers, topic, ["before"])
    query = run.start(once=False, **options)
    try:
        query.processAllAvailable()
        produce(servers, topic, numbered(0, 3))
        query.processAllAvailable()
    finally:
        query.stop()
    produce(servers, topic, numbered(3, 6))

    query = run.start(once=False, **options)
    try:
        query.processAllAvailable()
    finally:
        query.stop()

    assert run.values == numbered(0, 6)


def test_records_that_were_deleted_before_they_were_read_are_named_exactly(
    run: Run, servers: str, topic: str
) -> None:
    produce(servers, topic, numbered(0, 5))
    run.through()
    produce(servers, topic, numbered(5, 10))
    delete_records(servers, topic, before=8)

    with pytest.raises(StreamingQueryException, match=f"{topic}/0: offsets 5 to 7 are gone before they were"):
        run.through()
    run.through(failOnDataLoss="false")

    assert run.values == ["v8", "v9"]


def test_a_topic_created_anew_under_the_checkpoint_is_noticed_though_its_offsets_look_the_same(
    run: Run, servers: str, topic: str
) -> None:
    produce(servers, topic, numbered(0, 5))
    run.through()
    topics = TopicAdmin(Endpoint(servers))
    topics.delete(topic)
    topics.create(topic, 2, 1, {})
    produce(servers, topic, numbered(0, 5, "new"))

    with pytest.raises(StreamingQueryException, match=f"{topic}/0: the topic was created anew"):
        run.through()
    run.through(failOnDataLoss="false")

    assert run.values == numbered(0, 5, "new")


def test_a_broker_that_goes_away_is_waited_for(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node").start()
    query = None
    try:
        TopicAdmin(Endpoint(node.kafka)).create("here", 1, 1, {})
        produce(node.kafka, "here", numbered(0, 3))
        run = Run(spark, checkpoint, **{"kafka.bootstrap.servers": node.kafka, "subscribe": "here"})
        query = run.start(once=False, startingOffsets="earliest")
        query.processAllAvailable()

        node.kill()
        # Triggers go on while the broker is away; each of them waits for it.
        query.awaitTermination(3)
        node.start()
        produce(node.kafka, "here", numbered(3, 6))
        query.processAllAvailable()

        assert run.values == numbered(0, 6)
    finally:
        if query is not None:
            query.stop()
        node.stop()
