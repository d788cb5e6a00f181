from penstock.core.model import Refused, Why
from penstock.server.kafka.errors import CODES, code_of, message_of


def test_every_reason_has_a_kafka_code() -> None:
    assert set(CODES) == set(Why)


def test_a_refusal_without_detail_still_says_something() -> None:
    refused = Refused(Why.UNKNOWN_TOPIC)

    assert message_of(refused) == Why.UNKNOWN_TOPIC.value
    assert code_of(refused) != 0
