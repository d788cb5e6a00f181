"""Copies one topic to another in transactions, as a process that may be killed at any moment.

    python -m tests.cluster.copier BOOTSTRAP SOURCE SINK GROUP TRANSACTIONAL_ID

It ends when a transaction can only be given up with its producer; whoever started it starts it again.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.cluster.load import QUIET

SECONDS = 30.0
FAST = {"retry.backoff.ms": 50, "retry.backoff.max.ms": 200, "reconnect.backoff.max.ms": 200, **QUIET}
BATCH_RECORDS_MAX = 50
FATAL = 3


def main(bootstrap: str, source: str, sink: str, group: str, transactional_id: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            **FAST,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
            **FAST,
        }
    )
    producer.init_transactions(SECONDS)
    consumer.subscribe([source])
    while True:
        batch = [message for message in consumer.consume(BATCH_RECORDS_MAX, 0.2) if message.error() is None]
        if not batch:
            continue
        try:
            _copy(consumer, producer, sink, batch)
        except KafkaException as failed:
            error = failed.args[0]
            if not error.txn_requires_abort():
                sys.stderr.write(f"{transactional_id}: {error}\n")
                return FATAL
            producer.abort_transaction(SECONDS)
            _rewind(consumer)


def _copy(consumer: Consumer, producer: Producer, sink: str, batch: list[Message]) -> None:
    producer.begin_transaction()
    ends: dict[tuple[str, int], int] = {}
    for message in batch:
        producer.produce(sink, message.value(), partition=message.partition())
        ends[message.topic(), message.partition()] = message.offset() + 1
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()],
        consumer.consumer_group_metadata(),
        SECONDS,
    )
    producer.commit_transaction(SECONDS)


def _rewind(consumer: Consumer) -> None:
    """Back to what the group has committed."""
    for position in consumer.committed(consumer.assignment(), SECONDS):
        if position.offset < 0:
            position.offset = 0
        consumer.seek(position)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
