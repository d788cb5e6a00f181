"""Settings by the names that people know, in both spellings."""

import confluent_kafka
import pytest

from penstock.client import properties
from penstock.client.errors import InvalidProperty
from penstock.client.properties import Role, read_properties


def test_both_spellings_name_the_same_setting() -> None:
    read = read_properties(
        "consumer", {"group.id": "mail", "fetch.min.bytes": 7}, {"auto_offset_reset": "earliest"}
    )

    assert read.librdkafka["group.id"] == "mail"
    assert read.librdkafka["fetch.min.bytes"] == 7
    assert read.librdkafka["auto.offset.reset"] == "earliest"


def test_names_of_the_java_client_are_translated() -> None:
    producer = read_properties("producer", {"buffer.memory": 1 << 20, "max.request.size": "9"}, {})
    consumer = read_properties(
        "consumer",
        {
            "fetch.max.wait.ms": 3,
            "request.timeout.ms": 4,
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        },
        {"bootstrap_servers": ["a:1", "b:2"], "max_poll_records": 10},
    )

    assert producer.librdkafka["queue.buffering.max.kbytes"] == 1024
    assert producer.librdkafka["message.max.bytes"] == "9"
    assert consumer.librdkafka["fetch.wait.max.ms"] == 3
    assert consumer.librdkafka["socket.timeout.ms"] == 4
    assert consumer.librdkafka["partition.assignment.strategy"] == "cooperative-sticky"
    assert consumer.bootstrap == "a:1,b:2"
    assert consumer.own["max.poll.records"] == 10
    assert "max.poll.records" not in consumer.librdkafka


@pytest.mark.parametrize(("acks", "is_idempotent"), [(None, True), ("all", True), (-1, True), (1, False)])
def test_a_producer_is_idempotent_unless_fewer_acknowledgements_are_asked_for(
    acks: object, is_idempotent: bool
) -> None:
    read = read_properties("producer", None, {"acks": acks})

    assert read.librdkafka["enable.idempotence"] is is_idempotent


@pytest.mark.parametrize(
    ("role", "given", "complaint"),
    [
        ("producer", {"linger.sm": 1}, "there is no setting linger.sm: is it linger.ms?"),
        ("producer", {"xyzzy": 1}, "there is no setting xyzzy"),
        ("producer", {"group.id": "g"}, "group.id is a setting of a consumer, and this is a producer"),
        ("consumer", {"linger.ms": 1}, "linger.ms is a setting of a producer, and this is a consumer"),
        ("consumer", {"max.block.ms": 1}, "max.block.ms is a setting of a producer, and this is a consumer"),
        ("producer", {"key.serializer": "x"}, "key.serializer is no setting here: use key_serializer="),
        ("producer", {"max.block.ms": "soon"}, "max.block.ms is a whole number, not 'soon'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(role: Role, given: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidProperty) as raised:
        read_properties(role, given, {})

    assert str(raised.value) == complaint


def test_a_keyword_counts_more_than_the_mapping() -> None:
    assert read_properties("producer", {"linger.ms": 1}, {"linger_ms": 2}).librdkafka["linger.ms"] == 2


def test_a_setting_given_by_two_of_its_names_is_refused() -> None:
    with pytest.raises(InvalidProperty, match=r"fetch\.wait\.max\.ms is given twice, by two of its names"):
        read_properties("consumer", {"fetch.max.wait.ms": 1, "fetch.wait.max.ms": 2}, {})


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_librdkafka_knows_every_name_that_we_take(role: Role) -> None:
    kind = confluent_kafka.Producer if role == "producer" else confluent_kafka.Consumer
    unknown = []
    for name in sorted(properties._SHARED | properties._OF_ROLE[role]):
        # Values are wrong on purpose: the complaint is about the value, or about the name.
        with pytest.raises((confluent_kafka.KafkaException, TypeError, ValueError)) as raised:
            kind({"group.id": "g", name: "\0wrong", "statistics.interval.ms": "\0wrong"})
        if "No such configuration property" in str(raised.value):
            unknown.append(name)

    assert unknown == []
