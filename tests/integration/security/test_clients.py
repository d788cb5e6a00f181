"""Clients that are not ours, with every way to log in that they have."""

import asyncio
import secrets
import ssl
from typing import Any

import aiokafka
import aiokafka.abc
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.integration.security.conftest import PASSWORDS, Secured
from tests.support.clusters import until

PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
SECONDS = 30
WAYS = [
    *(("SASL_PLAINTEXT", mechanism) for mechanism in PASSWORD_MECHANISMS),
    *(("SASL_SSL", mechanism) for mechanism in PASSWORD_MECHANISMS),
    ("SSL", ""),
]


def fresh() -> str:
    return f"alice-{secrets.token_hex(4)}"


def librdkafka(
    secured: Secured, protocol: str, user: str, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.addresses[protocol],
        **secured.options(protocol, user, mechanism),
        "log_level": 0,
    }


def produce(settings: dict[str, Any], topic: str, value: bytes) -> KafkaError | None:
    """Send a record; returns what went wrong."""
    failures: list[Any] = []
    producer = Producer({**settings, "message.timeout.ms": SECONDS * 1_000, "enable.idempotence": True})
    producer.produce(topic, value, callback=lambda error, _: failures.append(error))
    assert producer.flush(SECONDS) == 0
    return failures[0]


def consume(settings: dict[str, Any], topic: str) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found = consumer.consume(1, SECONDS)
    finally:
        consumer.close()
    assert [message.error() for message in found] == [None]
    return [message.value() for message in found]


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_librdkafka(secured: Secured, protocol: str, mechanism: str) -> None:
    settings, topic = librdkafka(secured, protocol, "alice", mechanism), fresh()

    assert produce(settings, topic, b"x" * 100_000) is None
    assert consume(settings, topic) == [b"x" * 100_000]


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafka_python(secured: Secured, protocol: str, mechanism: str) -> None:
    topic = fresh()
    settings = python_settings(secured, protocol, mechanism)

    producer = kafka.KafkaProducer(**settings)
    assert producer.send(topic, b"hello").get(SECONDS).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"hello"
    consumer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_aiokafka(secured: Secured, protocol: str, mechanism: str) -> None:
    settings, topic = python_settings(secured, protocol, mechanism), fresh()

    async def round_trip() -> bytes:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"hello")
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        async with consumer:
            message = await asyncio.wait_for(consumer.getone(), SECONDS)
            return bytes(message.value)

    assert asyncio.run(round_trip()) == b"hello"


def python_settings(secured: Secured, protocol: str, mechanism: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.addresses[protocol],
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=str(secured.authority))
        if protocol == "SSL":
            context.load_cert_chain(*secured.alice)
        settings["ssl_context"] = context
    if mechanism:
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORDS["alice"],
        }
    return settings


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_token_of_the_issuer_logs_in(secured: Secured, protocol: str) -> None:
    topic = fresh()
    settings = librdkafka(secured, protocol, "alice", "OAUTHBEARER") | {
        "oauth_cb": lambda _: (secured.issuer.token("alice"), 4_102_444_800)
    }

    assert produce(settings, topic, b"by token") is None


@pytest.mark.parametrize(
    "changes", [{"aud": "others"}, {"iss": "https://other.example"}, {"exp": 1_000_000_000}, {"sub": ""}]
)
def test_a_token_that_does_not_count_does_not_log_in(secured: Secured, changes: dict[str, Any]) -> None:
    assert authentication_error(
        librdkafka(secured, "SASL_PLAINTEXT", "alice", "OAUTHBEARER")
        | {"oauth_cb": lambda _: (secured.issuer.token("alice", **changes), 4_102_444_800)}
    )


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_wrong_password_does_not_log_in(secured: Secured, mechanism: str) -> None:
    wrong = {"sasl.password": "wrong", "sasl.username": f"alice-{mechanism}"}

    assert authentication_error(librdkafka(secured, "SASL_SSL", "alice", mechanism) | wrong)


def authentication_error(settings: dict[str, Any]) -> bool:
    """Whether the client is told that it is not believed, which takes the longer the more have failed."""
    errors: list[KafkaError] = []
    consumer = Consumer({**settings, "group.id": "alice-x", "error_cb": errors.append})
    consumer.subscribe(["alice-x"])
    try:
        until(lambda: consumer.poll(0.1) is None and bool(errors), "the client has an error")
    finally:
        consumer.close()
    return bool(errors[0].code() == KafkaError._AUTHENTICATION)


def test_who_has_no_rule_may_do_nothing(secured: Secured) -> None:
    settings = librdkafka(secured, "SASL_SSL", "bob")

    failure = produce(settings, fresh(), b"x")

    assert failure is not None
    # Who may write to no topic is no producer.
    assert failure.code() in (
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._FATAL,
    )


def test_who_comes_without_a_certificate_is_nobody(secured: Secured) -> None:
    settings = librdkafka(secured, "SSL", "bob")

    failure = produce(settings | {"enable.idempotence": False}, fresh(), b"x")

    assert failure is not None


def test_a_client_without_tls_gets_nowhere(secured: Secured) -> None:
    plain = {"bootstrap.servers": secured.addresses["SASL_SSL"], "group.id": "x", "log_level": 0}
    consumer = Consumer(plain)
    try:
        with pytest.raises(KafkaException):
            consumer.list_topics(timeout=3)
    finally:
        consumer.close()
