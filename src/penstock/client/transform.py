"""Consume, transform, produce: every message leads to its records exactly once.

A batch of messages, what a function makes of them, and the consumer's offsets are one transaction.
One that was aborted, because a broker failed or the group was rebalanced, is done again from the same
messages. Whoever reads the results with `isolation.level=read_committed` sees each of them once.
"""

import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Generic, NamedTuple

from penstock.client.backoff import Backoff
from penstock.client.errors import TransactionAborted
from penstock.client.message import Message
from penstock.client.record_types import SentKey as K
from penstock.client.record_types import SentValue as V
from penstock.client.sync_consumer import Consumer
from penstock.client.sync_producer import HeadersLike, Producer

TURN_SECONDS = 0.5
# So many aborts in a row are no accident.
ABORTS_MAX = 20


class Outgoing(NamedTuple, Generic[K, V]):
    """A record to be sent."""

    topic: str
    value: V | None = None
    key: K | None = None
    partition: int | None = None
    headers: HeadersLike | None = None


def transform(
    consumer: Consumer[Any, Any],
    producer: Producer[Any, Any],
    function: Callable[[Message[Any, Any]], Outgoing[Any, Any] | Iterable[Outgoing[Any, Any]] | None],
    *,
    records_max: int | None = None,
    idle_seconds: float | None = None,
) -> int:
    """Apply `function` to every message until `consumer.stop()`; returns how many messages were.

    With `idle_seconds` it also returns when nothing has come for so long. The consumer must not commit
    by itself (`enable_auto_commit=False`), the producer needs a `transactional_id`. An exception of
    `function` aborts the transaction and comes out.
    """
    # First of all: offsets that a killed predecessor has left open hold the consumer up until it is fenced.
    producer.init_transactions()
    done = 0
    heard = time.perf_counter()
    backoff = Backoff()
    while not consumer.is_stopped:
        messages = consumer.poll_batch(records_max, TURN_SECONDS)
        if not messages:
            if idle_seconds is not None and time.perf_counter() - heard >= idle_seconds:
                break
            continue
        try:
            with producer.transaction(consumer) as transaction:
                for one in chain.from_iterable(_each(function(message)) for message in messages):
                    transaction.send(
                        one.topic, one.value, one.key, partition=one.partition, headers=one.headers
                    )
        except TransactionAborted:
            if backoff.tries >= ABORTS_MAX:
                raise
            time.sleep(backoff.next_seconds())
        else:
            done += len(messages)
            backoff.tries = 0
            heard = time.perf_counter()
    return done


def _each(result: Outgoing[Any, Any] | Iterable[Outgoing[Any, Any]] | None) -> Iterable[Outgoing[Any, Any]]:
    if result is None:
        return ()
    return (result,) if isinstance(result, Outgoing) else result
