"""Batch commit from the outside: tasks of librdkafka, a driver with an HTTP client."""

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from penstock.cli.child import BrokerProcess, throw_away_broker
from penstock.client import Endpoint, TopicAdmin
from penstock.client.transactions import TransactionAdmin

TOPIC = "rows"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with throw_away_broker() as child:
        yield child


def write(broker: BrokerProcess, task: int, *values: bytes) -> tuple[Producer, dict[str, Any]]:
    """A task that has written, and what it tells its driver."""
    transactional_id = f"rows-sink#{task}"
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(TOPIC, value)
    producer.flush(30)
    found = TransactionAdmin(Endpoint(broker.bootstrap)).describe(transactional_id)
    return producer, {
        "transactional_id": transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }


def commit(broker: BrokerProcess, batch: int, *transactions: dict[str, Any]) -> tuple[int, str]:
    host, _, port = broker.http.removeprefix("http://").rpartition(":")
    body = json.dumps({"transactions": list(transactions)})
    with closing(HTTPConnection(host, int(port), timeout=30)) as connection:
        connection.request("PUT", f"/v1/batches/rows-sink/{batch}", body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())["status"]


def read_committed(broker: BrokerProcess, until: bytes) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-{until.decode()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([TOPIC])
    found: list[bytes] = []
    while until not in found:
        for message in consumer.consume(100, 1.0):
            assert message.error() is None
            found.append(message.value() or b"")
    consumer.close()
    return sorted(found)


def test_what_the_tasks_of_a_batch_wrote_appears_together_and_once(broker: BrokerProcess) -> None:
    TopicAdmin(Endpoint(broker.bootstrap)).create(TOPIC, 1, 1, {})
    producers, listed = zip(*(write(broker, task, b"a%d" % task) for task in range(3)), strict=True)
    stale = {**listed[0], "producer_epoch": 7}

    assert commit(broker, 1, stale, *listed[1:]) == (409, "refused")
    assert commit(broker, 1, *listed) == (200, "committed")
    # The driver did not hear of it: all tasks write again, and nothing of that is seen.
    again = [write(broker, task, b"a%d" % task) for task in range(3)]
    assert commit(broker, 1, *(each for _, each in again)) == (200, "done")
    last = [write(broker, task, b"b%d" % task) for task in range(3)]
    assert commit(broker, 2, *(each for _, each in last)) == (200, "committed")

    assert read_committed(broker, b"b2") == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    with pytest.raises(KafkaException):
        producers[0].commit_transaction(10)
