"""A record that was not stored is never lost in silence."""

from typing import Any

import pytest

from penstock.client import DeliveryFailed
from penstock.client.sync_producer import DeliveryFuture


class Report:
    """A message of librdkafka's in a delivery report."""

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_800_000_000_000


def error() -> Any:
    from confluent_kafka import KafkaError

    return KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def test_a_failure_outlives_its_future() -> None:
    untaken: dict[int, DeliveryFailed] = {}

    for _ in range(20):
        DeliveryFuture(untaken).report(error(), Report())
        # It is gone already: this one is most likely where it was in memory.
        stored = DeliveryFuture(untaken)
        stored.report(None, Report())
        stored.result()

    assert len(untaken) == 20


def test_a_failure_that_was_looked_at_is_taken() -> None:
    untaken: dict[int, DeliveryFailed] = {}
    raised, looked_at = DeliveryFuture(untaken), DeliveryFuture(untaken)
    raised.report(error(), Report())
    looked_at.report(error(), Report())

    with pytest.raises(DeliveryFailed):
        raised.result()
    assert isinstance(looked_at.exception(), DeliveryFailed)

    assert not untaken
