"""Metrics of queue coordinators, and what they report to the rest of the node."""

from collections.abc import Callable
from typing import assert_never

from penstock.core.model import TopicId, TopicPartition
from penstock.core.queues import (
    DeadLettersDue,
    FinishCause,
    LeasesExpired,
    QueueCoordinator,
    QueueEvent,
    QueueFact,
    QueueId,
    RecordsExpired,
    RecordsFinished,
    RecordsGivenUp,
    RecordsLeased,
    RecordsReady,
    RecordsReleased,
    Run,
)
from penstock.observability import Metrics


class QueueMetrics(Metrics):
    """What becomes of the records of queues."""

    def __init__(self) -> None:
        super().__init__()
        self.leased = self.counter(
            "penstock_queue_leases_total", "Deliveries of records by queues that this node coordinates."
        )
        self.finished = self.counter(
            "penstock_queue_finished_total",
            "Records that queues are done with, by cause: `acknowledged`, `expired`, `moved`, `discarded`; "
            "without those that a transaction finished.",
            ("cause",),
        )
        self.failed = self.counter(
            "penstock_queue_failures_total",
            "Deliveries that failed: `released` to be repeated, or `given_up`.",
            ("outcome",),
        )
        self.lease_timeouts = self.counter(
            "penstock_visibility_timeouts_total",
            "Leases of records that ended without an acknowledgement.",
            ("group", "topic"),
        )
        self.dead_letters = self.counter(
            "penstock_dead_lettered_total",
            "Records that this node has moved to dead-letter topics, by the topic they come from.",
            ("topic",),
        )
        self.load_failures = self.counter(
            "penstock_queue_load_failures_total",
            "Times that a queue coordinator's log could not be read; it is tried again.",
            ("partition",),
        )


class QueueObserver:
    """Observes all queue coordinators of a node.

    `on_ready` and `on_dead_letters` are called in the middle of a coordinator's step.
    """

    def __init__(
        self,
        metrics: QueueMetrics,
        on_ready: Callable[[QueueId], None],
        on_dead_letters: Callable[[QueueId], None],
        name_of: Callable[[TopicId], str],
    ) -> None:
        self._metrics = metrics
        self._name_of = name_of
        self._leased = metrics.leased.of()
        self._released, self._given_up = metrics.failed.of("released"), metrics.failed.of("given_up")
        self._finished = {cause: metrics.finished.of(cause.name.lower()) for cause in FinishCause}
        self._on_ready = on_ready
        self._on_dead_letters = on_dead_letters

    def on_fact(self, machine: QueueCoordinator, fact: QueueFact, *, is_new: bool) -> None:  # noqa: ARG002
        """A fact is about to become part of the state."""
        if not is_new:
            return
        match fact:
            case RecordsLeased():
                self._leased.count += _count(fact.runs)
            case RecordsFinished():
                self._finished[fact.cause].count += _count(fact.runs)
            case RecordsReleased():
                self._released.count += len(fact.released)
            case RecordsGivenUp():
                self._given_up.count += _count(fact.runs)
            case _:
                pass

    def on_load_failed(self, partition: TopicPartition) -> None:
        self._metrics.load_failures.of(partition).count += 1

    def on_closed(self, machine: QueueCoordinator) -> None:
        """The coordinator with this state was closed."""

    def on_event(self, event: QueueEvent) -> None:
        match event:
            case RecordsReady():
                self._on_ready(event.queue)
            case DeadLettersDue():
                self._on_dead_letters(event.queue)
            case LeasesExpired():
                topic = self._name_of(event.queue.topic_id)
                self._metrics.lease_timeouts.of(event.queue.group_id, topic).count += event.records
            case RecordsExpired():
                # Counted with the fact, except for those that are never taken from the log.
                pass
            case _:
                assert_never(event)


def _count(runs: tuple[Run, ...]) -> int:
    return sum(end - start for start, end in runs)
