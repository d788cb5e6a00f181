"""Metrics and log events of transaction coordinators."""

from collections.abc import Callable
from typing import assert_never

from penstock.core.model import MILLISECOND, SECOND, TopicPartition
from penstock.core.transactions import (
    Event,
    Fact,
    MarkersDue,
    TransactionCompleted,
    TransactionCoordinator,
    TransactionTimedOut,
)
from penstock.observability import Metrics
from penstock.observability import log as events

DURATION_BOUNDS_NS = (
    *(5 * MILLISECOND, 10 * MILLISECOND, 25 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND),
    *(250 * MILLISECOND, 500 * MILLISECOND, 1 * SECOND, 5 * SECOND, 30 * SECOND, 60 * SECOND, 900 * SECOND),
)


class TransactionMetrics(Metrics):
    """What becomes of transactions, how long they take, and what stands in their way."""

    def __init__(self) -> None:
        super().__init__()
        self.open = self.gauge(
            "penstock_transactions_open", "Transactions that this node coordinates and that have not ended."
        )
        self.ended = self.counter(
            "penstock_transactions_total",
            "Transactions that ended, by outcome: `committed` or `aborted`.",
            ("outcome",),
        )
        self.timeouts = self.counter(
            "penstock_transaction_timeouts_total",
            "Transactions that were aborted because they took longer than their producer had said.",
        )
        self.duration_seconds = self.seconds(
            "penstock_transaction_seconds",
            "Time from a transaction's first partition to its last marker.",
            (),
            DURATION_BOUNDS_NS,
        )
        self.marker_retries = self.counter(
            "penstock_transaction_marker_retries_total",
            "Markers that a partition's leader did not take at once; they are sent again.",
        )
        self.load_failures = self.counter(
            "penstock_transaction_load_failures_total",
            "Times that a transaction coordinator's log could not be read; it is tried again.",
            ("partition",),
        )


class TransactionObserver:
    """Observes the events of all transaction coordinators of a node."""

    def __init__(self, metrics: TransactionMetrics, on_markers_due: Callable[[str], None]) -> None:
        self._metrics = metrics
        self._committed, self._aborted = metrics.ended.of("committed"), metrics.ended.of("aborted")
        self._duration = metrics.duration_seconds.of()
        self._on_markers_due = on_markers_due

    def on_fact(self, machine: TransactionCoordinator, fact: Fact, *, is_new: bool) -> None:
        """A fact is about to become part of the state."""

    def on_load_failed(self, partition: TopicPartition) -> None:
        self._metrics.load_failures.of(partition).count += 1

    def on_closed(self, machine: TransactionCoordinator) -> None:
        """The coordinator with this state was closed."""

    def on_event(self, event: Event) -> None:
        match event:
            case MarkersDue():
                self._on_markers_due(event.transactional_id)
            case TransactionTimedOut():
                self._metrics.timeouts.of().count += 1
                events.warning(
                    "transaction.timed_out",
                    transactional_id=event.transactional_id,
                    timeout_ms=event.timeout_ms,
                )
            case TransactionCompleted():
                (self._committed if event.is_commit else self._aborted).count += 1
                self._duration.observe(event.elapsed_ms * MILLISECOND)
            case _:
                assert_never(event)
