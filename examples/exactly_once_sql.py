"""Orders from a topic into a SQL table, exactly once: the offsets are committed with the rows.

python examples/exactly_once_sql.py [HOST:PORT [DATABASE]]    # by default 127.0.0.1:9092, and in memory

Kill it at any moment and start it again: every order is in the table once.
"""

import os
import sqlite3
import sys

from penstock.client import BrokerUnreachable, Consumer, Endpoint, Producer, SqlOffsets, StringSerde, reach

TOPIC = "example-sql-orders"
ORDERS = {"anna": "3 apples", "ben": "a book", "carla": "2 chairs"}
IDLE_SECONDS = 3.0


def send(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for customer, order in ORDERS.items():
            producer.send(TOPIC, order, customer)


def copy(bootstrap: str, connection: sqlite3.Connection, records_max: int = 500) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT, customer TEXT, content TEXT)")
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id="example-sql",
        group_instance_id="example-sql-1",  # it has its partitions back at once after a restart
        auto_offset_reset="earliest",
        topics=TOPIC,
        key_deserializer=StringSerde(),
        value_deserializer=StringSerde(),
        offset_store=SqlOffsets(connection, "example-sql"),
    ) as consumer:
        while messages := consumer.poll_batch(records_max, IDLE_SECONDS):
            with connection:  # one transaction: rows and offsets
                rows = [(message.id, message.key, message.value) for message in messages]
                connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
                consumer.commit()


def main(bootstrap: str, database: str) -> None:
    try:
        reach(Endpoint(bootstrap))
    except BrokerUnreachable as error:
        raise SystemExit(str(error)) from None
    connection = sqlite3.connect(database)
    send(bootstrap)
    copy(bootstrap, connection)
    for row in connection.execute("SELECT customer, content, count(*) FROM orders GROUP BY 1, 2 ORDER BY 1"):
        print("{}: {}, {} times".format(*row))
    connection.close()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        arguments[0] if arguments else os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092"),
        arguments[1] if len(arguments) > 1 else ":memory:",
    )
