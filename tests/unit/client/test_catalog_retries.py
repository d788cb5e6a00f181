"""What a catalogue does while librdkafka waits for a leader that is gone."""

import time
from concurrent.futures import Future
from typing import Any, ClassVar

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from penstock.client import Endpoint, TopicCatalog, catalog

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Node:
    host, port = "second", 9093


class Partition:
    id = 0
    replicas = (Node,)


class Topic:
    topic_id = "AAAAAAAAAAAAAAAAAAAAAw"
    partitions = (Partition,)


class Offset:
    offset = 7


class SlowAdmin:
    """Times out `failures` times over all its instances; remembers how it was made and asked."""

    failures = 0
    bootstraps: ClassVar[list[str]] = []
    seconds: ClassVar[list[float]] = []

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        self.bootstraps.append(settings["bootstrap.servers"])

    def describe_topics(self, names: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        return {"t": self._result(request_timeout, Topic)}

    def list_offsets(
        self, asked: dict[Any, Any], isolation_level: object, request_timeout: float
    ) -> dict[Any, Future[Any]]:
        return {one: self._result(request_timeout, Offset) for one in asked}

    def _result(self, seconds: float, value: object) -> Future[Any]:
        self.seconds.append(seconds)
        found: Future[Any] = Future()
        if SlowAdmin.failures:
            SlowAdmin.failures -= 1
            found.set_exception(TIMED_OUT)
        else:
            found.set_result(value)
        return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> type[SlowAdmin]:
    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", SlowAdmin)
    monkeypatch.setattr(catalog, "check_reachable", lambda endpoint: None)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(SlowAdmin, "bootstraps", [])
    monkeypatch.setattr(SlowAdmin, "seconds", [])
    return SlowAdmin


def test_a_question_that_is_repeated_may_take_longer_each_time(slow: type[SlowAdmin]) -> None:
    slow.failures = 6
    catalogue = TopicCatalog(Endpoint("first:9092"))

    assert catalogue.latest([("t", 0)]) == {("t", 0): 7}
    assert slow.seconds == [0.5, 1, 2, 4, 8, 15, 15]
    assert len(slow.bootstraps) == 7

    catalogue.latest([("t", 0)])
    assert slow.seconds[7:] == [0.5]


def test_a_new_client_also_asks_the_brokers_that_were_seen(slow: type[SlowAdmin]) -> None:
    catalogue = TopicCatalog(Endpoint("first:9092"))

    catalogue.topics(["t"])
    slow.failures = 1
    catalogue.topics(["t"])

    assert slow.bootstraps == ["first:9092", "first:9092,second:9093"]
