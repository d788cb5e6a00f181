from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client import Endpoint
from penstock.client.admin import answer_of
from penstock.client.endpoint import ClientError, InvalidAddress, client_error, reason


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "unknown topic or partition"),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), "broker transport failure"),
        (KafkaError(KafkaError.UNKNOWN, "Broker: SASL is off"), "SASL is off"),
        (KafkaError(KafkaError.UNKNOWN, "Failed: Local: Timed out"), "failed: Timed out"),
        (TypeError("wrong"), "wrong"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_reason_has_no_codes_and_no_side_of_the_wire(error: object, words: str) -> None:
    assert reason(error) == words


def test_what_failed_is_named_once() -> None:
    silent = KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)
    telling = KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "Topic 'orders' is there")

    assert str(client_error("topic orders", silent)) == "topic orders: topic already exists"
    assert str(client_error("topic orders", telling)) == "topic 'orders' is there"


def test_bootstrap_addresses_are_taken_apart() -> None:
    endpoint = Endpoint("a:1, b.example:65535,[::1]:2,c")

    assert endpoint.addresses() == [("a", 1), ("b.example", 65_535), ("::1", 2), ("c", 9_092)]


@pytest.mark.parametrize("text", ["a:", ":1", "a:b", "a:65536", "a:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress, match="not a host:port"):
        Endpoint(text).addresses()


def test_settings_are_ours_unless_the_operator_says_otherwise() -> None:
    endpoint = Endpoint("a:1", {"linger.ms": "7", "security.protocol": "ssl"})

    settings = endpoint.settings(linger_ms=5, stats_cb=print)

    assert settings["bootstrap.servers"] == "a:1"
    assert (settings["linger.ms"], settings["security.protocol"]) == ("7", "ssl")
    assert settings["stats_cb"] is print


class Broker:
    """Answers with these codes one after the other, then with what it was asked for."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def ask(self) -> Future[str]:
        answer: Future[str] = Future()
        if self._codes:
            answer.set_exception(KafkaException(KafkaError(self._codes.pop(0))))
        else:
            answer.set_result("two members")
        return answer


def test_a_coordinator_that_starts_or_moves_is_asked_again() -> None:
    broker = Broker(
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    )

    assert answer_of("group a", broker.ask) == "two members"


def test_any_other_error_is_said_at_once() -> None:
    broker = Broker(KafkaError.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(ClientError, match="group authorization failed"):
        answer_of("group a", broker.ask)
