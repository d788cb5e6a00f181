"""The sending side against a real broker, without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client import ConsumedRecord, ConsumerOptions, Endpoint, TopicAdmin, TopicConsumer
from penstock.core.records import murmur2_partition
from penstock.spark.errors import PipelineError
from penstock.spark.sink import AtLeastOnceDelivery, TaskId, TopicWriter
from tests.support.nodes import NodeProcess

TASK = TaskId(None, 0, 0)


def writer(servers: str, topic: str | None, **settings: str) -> TopicWriter:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return TopicWriter(AtLeastOnceDelivery({"bootstrap.servers": servers, **named}), topic, TASK)


def everything(servers: str, topic: str) -> list[ConsumedRecord]:
    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions()) as reader:
        return [read for batch in reader.batches() for read in batch]


@pytest.fixture(scope="module")
def strict_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A broker that creates no topics by itself."""
    home: Path = tmp_path_factory.mktemp("strict")
    node = NodeProcess(home / "node", "topics.auto_create=false").start()
    yield node
    node.stop()


def test_more_records_than_the_queue_holds_arrive_once_each_and_in_the_order_of_their_key(
    servers: str, topic: str
) -> None:
    keys = [b"k%d" % (number % 7) for number in range(20_000)]
    values = [b"%d" % number for number in range(20_000)]
    sending = writer(servers, topic, queue_buffering_max_messages="500")

    sending.write_batch(pa.RecordBatch.from_pydict({"key": keys, "value": values}))
    receipt = sending.finish()

    reads = everything(servers, topic)
    assert receipt.records == len(reads) == 20_000
    assert {read.value for read in reads} == set(values)
    assert all(read.partition == murmur2_partition(read.key or b"", 2) for read in reads)
    for key in set(keys):
        order = [int(read.value or b"") for read in reads if read.key == key]
        assert order == sorted(order)


def test_tombstones_empty_values_headers_and_times_arrive_as_they_were(servers: str, topic: str) -> None:
    headers = pa.array(
        [None, [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    sending = writer(servers, topic)

    sending.write_batch(pa.RecordBatch.from_pydict({"key": [b"a", b"a"], "value": [None, b""]}))
    sending.finish()
    sending.write_batch(
        pa.RecordBatch.from_pydict(
            {
                "value": ["x", "y"],
                "partition": pa.array([1, 1], pa.int32()),
                "headers": headers,
                "timestamp": pa.array([5_000, 6_000], pa.int64()),
            }
        )
    )
    sending.finish()

    reads = everything(servers, topic)
    assert [read.value for read in reads if read.key == b"a"] == [None, b""]
    lone = [read for read in reads if read.key is None]
    assert [(read.partition, read.timestamp_ms, read.value) for read in lone] == [
        (1, 5_000, b"x"),
        (1, 6_000, b"y"),
    ]
    assert list(lone[1].headers) == [("h", b"\xff"), ("h", None)]


def test_a_topic_that_nobody_creates_is_named(strict_node: NodeProcess) -> None:
    sending = writer(strict_node.kafka, "nowhere")

    with pytest.raises(PipelineError, match=r"topic nowhere at .* does not exist, and the broker does not"):
        sending.write_batch(pa.RecordBatch.from_pydict({"value": [b"x"]}))


def test_a_partition_that_is_not_there_is_named(servers: str, topic: str) -> None:
    sending = writer(servers, topic)

    with pytest.raises(PipelineError, match=f"{topic}: there is no partition 9, only 0 to 1"):
        sending.write_batch(
            pa.RecordBatch.from_pydict({"value": [b"x"], "partition": pa.array([9], pa.int32())})
        )


def test_a_record_that_is_too_large_fails_the_task_and_is_named_with_its_topic(
    servers: str, topic: str
) -> None:
    sending = writer(servers, topic)

    with pytest.raises(PipelineError, match=f"{topic}: a record was not delivered: .*too large"):
        sending.write_batch(pa.RecordBatch.from_pydict({"value": [b"small", b"x" * 1_100_000]}))


def test_a_record_that_the_broker_refuses_fails_the_task_with_topic_and_partition(
    servers: str, topic: str
) -> None:
    TopicAdmin(Endpoint(servers)).alter_configs(topic, {"max.message.bytes": "1000"})
    sending = writer(servers, topic)
    sending.write_batch(pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"x" * 5_000]}))

    with pytest.raises(PipelineError, match=rf"{topic}/\d: a record was not delivered: "):
        sending.finish()


def test_a_broker_that_is_away_for_a_while_gets_everything_when_it_is_back(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node").start()
    try:
        sending = writer(node.kafka, "t")
        sending.write_batch(pa.RecordBatch.from_pydict({"value": [b"before"]}))
        node.kill()
        sending.write_batch(pa.RecordBatch.from_pydict({"value": [b"meanwhile"]}))
        node.start()

        receipt = sending.finish()

        assert receipt.records == 2
        assert {read.value for read in everything(node.kafka, "t")} == {b"before", b"meanwhile"}
    finally:
        node.stop()


def test_a_broker_that_stays_away_fails_the_task_within_the_time_for_a_delivery(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node").start()
    sending = writer(node.kafka, "t", message_timeout_ms="1000")
    sending.write_batch(pa.RecordBatch.from_pydict({"value": [b"before"]}))
    node.kill()
    sending.write_batch(pa.RecordBatch.from_pydict({"value": [b"never"]}))

    with pytest.raises(PipelineError, match=r"t/\d: a record was not delivered: message timed out"):
        sending.finish()
