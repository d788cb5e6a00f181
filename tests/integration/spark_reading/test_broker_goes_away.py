"""A broker that is killed while a span is read, and comes back."""

import threading

from penstock.spark.reading import OffsetRange
from penstock.spark.reading.spans import ReaderOptions
from tests.integration.spark_reading.conftest import OpenReader
from tests.integration.spark_reading.topics import create, send
from tests.support.nodes import NodeProcess

RECORDS = 3000
AWAY_SECONDS = 2.0


def test_reading_goes_on_where_it_stood(own_node: NodeProcess, open_one: OpenReader) -> None:
    create(own_node.kafka, "long")
    send(
        own_node.kafka,
        "long",
        [(None, b"%d" % number * 1000, []) for number in range(RECORDS)],
        batch_num_messages=20,
    )
    reader = open_one(own_node.kafka, ReaderOptions(rows_max=20, fetch_bytes_max=200_000))
    back = threading.Timer(AWAY_SECONDS, own_node.start)

    read = reader.read(OffsetRange("long", 0, 0, RECORDS))
    values = next(read).column("value").to_pylist()
    own_node.kill()
    back.start()
    for batch in read:
        values += batch.column("value").to_pylist()
    back.join()

    assert values == [b"%d" % number * 1000 for number in range(RECORDS)]
