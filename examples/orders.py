"""A stock Kafka client against a broker: make a topic, send orders, read them back in a group.

python examples/orders.py [HOST:PORT]    # by default the broker that `penstock up` starts, at 127.0.0.1:9092
"""

import os
import socket
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "example-orders"
ORDERS = {"anna": "3 apples", "ben": "a book", "carla": "2 chairs"}


def main(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    try:
        # Clients try for ever; somebody at a terminal would rather know.
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        raise SystemExit(f"no broker at {bootstrap}: start one with `penstock up`") from None
    # Warnings and errors only: that a broker asks for client metrics (KIP-714) is no news.
    common = {"bootstrap.servers": bootstrap, "log_level": 4}

    admin = AdminClient(common)
    created = admin.create_topics([NewTopic(TOPIC, num_partitions=3)])[TOPIC]
    try:
        created.result()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise

    # The same partition for a key as the Java client and `penstock produce` choose.
    producer = Producer({**common, "partitioner": "murmur2_random"})
    for customer, order in ORDERS.items():
        producer.produce(TOPIC, key=customer, value=order, on_delivery=report)
    producer.flush()

    consumer = Consumer({**common, "group.id": "example-mail", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    left = len(ORDERS)
    while left:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            print(f"read {message.key().decode()}: {message.value().decode()}")
            left -= 1
    consumer.close()  # commits how far it got: a second run reads only what is new


def report(error: object, message: Message) -> None:
    print(f"sent {message.key().decode()} to partition {message.partition()}" if error is None else error)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092"))
