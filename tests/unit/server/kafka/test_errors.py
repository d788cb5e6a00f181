from penstock.core.model import ApiError, ErrorKind
from penstock.server.kafka.errors import CODES, code_of, message_of


def test_every_reason_has_a_kafka_code() -> None:
    assert set(CODES) == set(ErrorKind)


def test_a_refusal_without_detail_still_says_something() -> None:
    refused = ApiError(ErrorKind.UNKNOWN_TOPIC)

    assert message_of(refused) == ErrorKind.UNKNOWN_TOPIC.value
    assert code_of(refused) != 0
