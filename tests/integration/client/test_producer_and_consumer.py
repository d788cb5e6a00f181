"""Producer and Consumer against a broker: what is sent is read, once it counts as processed never again."""

import gc
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import pytest
from confluent_kafka import KafkaError

from penstock.client import (
    ClientError,
    Consumer,
    DeadlineExceeded,
    DeliveryFailed,
    JsonSerde,
    Message,
    Producer,
    RequestFailed,
    SerializationFailed,
    StringSerde,
    TopicPartition,
)
from penstock.core.records.partitioner import murmur2_partition

SECONDS = 30.0
NOBODY = "127.0.0.1:1"


@dataclass
class Order:
    article: str
    pieces: int


def fill(bootstrap: str, topic: str, values: list[str], partition: int | None = None) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def values_of(messages: list[Message[bytes | None, bytes | None]]) -> list[str]:
    return [(message.value or b"").decode() for message in messages]


def group_consumer(bootstrap: str, topic: str, **more: bool) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"} | more,
        topics=topic,
    )


def test_a_record_is_read_as_it_was_sent(bootstrap: str, topic: str) -> None:
    at = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    with Producer(
        bootstrap_servers=[bootstrap], key_serializer=StringSerde(), value_serializer=JsonSerde(Order)
    ) as producer:
        sent = producer.send(
            topic, Order("apple", 3), key="anna", timestamp=at, headers={"trace": "7", "none": None}
        ).result(SECONDS)

    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        topics=[topic],
        key_deserializer=StringSerde(),
        value_deserializer=JsonSerde(Order),
    ) as consumer:
        message = next(consumer)

    assert message.value == Order("apple", 3)
    assert message.key == "anna"
    assert message.headers == (("trace", b"7"), ("none", None))
    assert message.header("trace") == b"7"
    assert message.timestamp == at
    assert message.id == sent.id == f"{topic}/{murmur2_partition(b'anna', 2)}/0"


def test_a_message_counts_as_processed_when_the_next_is_asked_for(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, ["0", "1", "2", "3"], partition=0)

    with suppress(ZeroDivisionError), group_consumer(bootstrap, topic) as consumer:
        for message in consumer:
            if message.value == b"2":
                raise ZeroDivisionError

    with group_consumer(bootstrap, topic) as consumer:
        again = list(islice(consumer, 1))
    with group_consumer(bootstrap, topic) as consumer:
        rest = list(islice(consumer, 1))

    assert values_of(again) == ["2"]
    # The block ended without an exception: its last message was processed.
    assert values_of(rest) == ["3"]


def test_without_auto_commit_only_what_is_committed_is_not_read_again(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, [str(number) for number in range(6)], partition=0)

    with group_consumer(bootstrap, topic, **{"enable.auto.commit": False}) as consumer:
        first = consumer.poll_batch(6, SECONDS)
        consumer.commit(first[1])
        where = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        consumer.rewind()
        again = consumer.poll_batch(6, SECONDS)
        consumer.commit()

    assert values_of(first) == ["0", "1", "2", "3", "4", "5"]
    assert where == {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): None}
    assert values_of(again) == ["2", "3", "4", "5"]
    with group_consumer(bootstrap, topic) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 6}


def test_partitions_that_are_taken_away_at_the_end_may_still_be_committed(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, ["a", "b"], partition=0)

    with group_consumer(bootstrap, topic, **{"enable.auto.commit": False}) as consumer:
        consumer.subscribe(topic, on_revoke=lambda _: consumer.commit())
        read = [next(consumer), next(consumer)]

    assert values_of(read) == ["a", "b"]
    with group_consumer(bootstrap, topic) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 2}


def test_a_consumer_that_commits_by_itself_rewinds_to_what_it_returned_last(
    bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, ["a", "b", "c"], partition=0)

    with group_consumer(bootstrap, topic) as consumer:
        first = [next(consumer), next(consumer)]
        consumer.rewind()
        again = [next(consumer), next(consumer)]

    assert values_of(first + again) == ["a", "b", "b", "c"]


def test_a_producer_that_is_forgotten_sends_what_it_has_and_warns(bootstrap: str, topic: str) -> None:
    def forget() -> None:
        Producer(bootstrap_servers=bootstrap, linger_ms=1_000).send(topic, "a", partition=0)
        gc.collect()

    with pytest.warns(ResourceWarning, match="a producer with 1 records on their way was not closed"):
        forget()

    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, 0): 0})
        assert next(consumer).value == b"a"


def test_a_consumer_that_nobody_lets_in_says_so() -> None:
    consumer = Consumer({"error_cb": print}, bootstrap_servers=NOBODY, group_id="g", topics="t")
    consumer._note_error(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))

    with pytest.raises(RequestFailed, match="the consumer cannot go on: wrong password"):
        next(consumer)
    assert consumer.last_error == "wrong password"
    consumer.close()


def test_a_consumer_without_a_group_reads_partitions_from_offsets(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, ["a", "b", "c"], partition=1)

    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, 1): 1})
        read = consumer.poll_batch(2, SECONDS)

        assert consumer.assignment() == [TopicPartition(topic, 1)]
        assert consumer.watermarks(TopicPartition(topic, 1)) == (0, 3)
        with pytest.raises(ClientError, match="subscribe needs group_id"):
            consumer.subscribe(topic)

    assert values_of(read) == ["b", "c"]


def test_a_value_that_cannot_be_read_names_its_record_and_is_passed(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, ['{"n": 1}', "no json", '{"n": 2}'], partition=0)

    with Consumer(bootstrap_servers=bootstrap, value_deserializer=JsonSerde()) as consumer:
        consumer.assign({TopicPartition(topic, 0): 0})
        first = consumer.poll_batch(10, SECONDS)
        with pytest.raises(SerializationFailed, match=f"{topic}/0/1: its value cannot be read") as raised:
            consumer.poll_batch(10, SECONDS)
        rest = consumer.poll_batch(10, SECONDS)

    assert [message.value for message in first + rest] == [{"n": 1}, {"n": 2}]
    assert raised.value.message is not None
    assert raised.value.message.value == b"no json"


def test_a_paused_partition_returns_nothing_until_it_is_resumed(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, ["a", "b"], partition=0)
    fill(bootstrap, topic, ["c"], partition=1)

    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
        consumer.fill(3, SECONDS)
        consumer.pause([TopicPartition(topic, 0)])
        read = consumer.poll_batch(10, SECONDS)
        consumer.resume([TopicPartition(topic, 0)])
        rest = consumer.poll_batch(1, SECONDS) + consumer.poll_batch(1, SECONDS)

    assert values_of(read) == ["c"]
    assert values_of(rest) == ["a", "b"]


@pytest.mark.parametrize("partitioner", ["round-robin", lambda _topic, _key, partitions: partitions - 1])
def test_a_partitioner_of_ours_decides(bootstrap: str, topic: str, partitioner: object) -> None:
    with Producer(bootstrap_servers=bootstrap, partitioner=partitioner) as producer:  # type: ignore[arg-type]
        deliveries = [producer.send(topic, "x", "same key").result(SECONDS) for _ in range(4)]

    partitions = [one.partition for one in deliveries]
    assert partitions == ([0, 1, 0, 1] if partitioner == "round-robin" else [1, 1, 1, 1])


def test_a_failure_that_nobody_has_taken_is_raised_at_the_end(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, ["there"])

    producer = Producer(bootstrap_servers=bootstrap)
    # Nobody knows yet how many partitions there are.
    taken = producer.send(topic, "x", partition=7)
    producer.send(topic, "x", partition=8)
    assert isinstance(taken.exception(SECONDS), DeliveryFailed)

    with pytest.raises(DeliveryFailed, match=f"^{topic}: a record was not stored: unknown partition$"):
        producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send(topic, "x")


def test_a_deadline_ends_a_flush_and_says_what_is_wrong(topic: str) -> None:
    producer = Producer(bootstrap_servers=NOBODY)
    producer.send(topic, "x")
    while "refused" not in producer.last_error:
        # What is wrong is known once librdkafka has tried to connect.
        with suppress(DeadlineExceeded):
            producer.flush(0.1)

    with pytest.raises(DeadlineExceeded, match=r"1 records were not stored within 0\.5 s: .*refused"):
        producer.close(0.5)


def test_a_queue_that_stays_full_is_an_error_after_max_block_ms(topic: str) -> None:
    producer = Producer({"queue.buffering.max.messages": 1}, bootstrap_servers=NOBODY, max_block_ms=100)
    producer.send(topic, "x")

    with pytest.raises(DeadlineExceeded, match="queue was full for 100 ms"):
        producer.send(topic, "y")
    with pytest.raises(DeadlineExceeded):
        producer.close(0.1)
