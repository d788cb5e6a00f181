"""What librdkafka says about a transaction, and what a program is told."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client.backoff import Backoff
from penstock.client.errors import (
    DeadlineExceeded,
    FatalFailure,
    ProducerFenced,
    RequestFailed,
    TransactionAborted,
    failure,
)
from penstock.client.message import TopicPartition
from penstock.client.transaction import Transaction, finish


class Scripted:
    """A call that fails with one error after the other, and then succeeds."""

    def __init__(self, *errors: KafkaError) -> None:
        self._errors = list(errors)
        self.calls = 0

    def __call__(self, _seconds: float) -> None:
        self.calls += 1
        if self._errors:
            raise KafkaException(self._errors.pop(0))


def error(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaError:
    return KafkaError(code, "why", fatal, retriable, abort)


def test_what_is_retriable_is_retried_until_it_is_done() -> None:
    call = Scripted(
        error(KafkaError._TIMED_OUT, retriable=True),
        error(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, retriable=True),
    )

    finish("committing", call, timeout=60)

    assert call.calls == 3


def test_the_deadline_ends_the_retries() -> None:
    with pytest.raises(DeadlineExceeded, match=r"committing: not done within 0\.0 s: why"):
        finish("committing", Scripted(error(KafkaError._TIMED_OUT, retriable=True)), timeout=0.0)


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (error(KafkaError.INVALID_TXN_STATE, abort=True), TransactionAborted),
        (error(KafkaError.ILLEGAL_GENERATION, abort=True, retriable=True), TransactionAborted),
        (error(KafkaError._FENCED, fatal=True), ProducerFenced),
        (error(KafkaError.INVALID_PRODUCER_EPOCH, fatal=True, abort=True), ProducerFenced),
        (error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True), FatalFailure),
        (error(KafkaError._STATE), RequestFailed),
    ],
)
def test_what_a_program_can_do_is_in_the_type(refusal: KafkaError, expected: type[RequestFailed]) -> None:
    with pytest.raises(RequestFailed) as raised:
        finish("committing", Scripted(refusal), timeout=60)

    assert type(raised.value) is expected
    assert raised.value.name == refusal.name()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "is_retriable"),
    [
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
    ],
)
def test_an_error_says_whether_a_retry_may_help(code: int, is_retriable: bool) -> None:
    assert failure("orders", error(code)).retriable is is_retriable


def test_waits_grow_up_to_a_limit_and_differ() -> None:
    backoff = Backoff(100, 1_000)
    waits = [backoff.next_seconds() for _ in range(8)]

    for wait, middle in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert middle * 0.8 <= wait <= middle * 1.2
    assert len(set(waits)) > 1


class Librdkafka:
    """Says what became of a transaction."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def abort_transaction(self, _seconds: float) -> None:
        self.calls.append("abort")


class TransactionalProducer:
    """A producer, as a transaction sees it."""

    def __init__(self) -> None:
        self.client = Librdkafka()

    def forget_failures(self) -> None:
        pass


class LostConsumer:
    """A consumer that cannot go back."""

    def uncommitted(self) -> dict[TopicPartition, int]:
        return {}

    def group_metadata(self) -> None:
        return None

    def committed_elsewhere(self, offsets: Mapping[TopicPartition, int]) -> None:
        pass

    def rewind(self) -> None:
        raise RequestFailed("seek: the partition is gone", "_STATE")


def test_a_transaction_is_aborted_though_its_consumer_cannot_go_back() -> None:
    producer = TransactionalProducer()
    transaction = Transaction(cast("Any", producer), LostConsumer(), 1.0)

    with pytest.raises(RequestFailed, match="the partition is gone"), transaction:
        raise ZeroDivisionError

    assert producer.client.calls == ["begin", "abort"]
