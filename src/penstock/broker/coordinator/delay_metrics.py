"""Metrics of delay coordinators, and what they report to the rest of the node."""

from collections.abc import Callable
from typing import assert_never

from penstock.core.delays import (
    DelayCoordinator,
    DelayEvent,
    DelayFact,
    DelayFinish,
    DelaysDropped,
    DelaysDue,
    DelaysFinished,
    DelaysStored,
)
from penstock.core.model import TopicPartition
from penstock.observability import Metrics
from penstock.observability import log as events


class DelayMetrics(Metrics):
    """What becomes of records that are published later."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = self.gauge(
            "penstock_delayed_pending", "Records to be published later, of partitions that this node leads."
        )
        self.scheduled = self.counter(
            "penstock_delayed_scheduled_total",
            "Records that this node has stored to publish later, and those that it has stored again.",
        )
        self.finished = self.counter(
            "penstock_delayed_finished_total",
            "Delays that ended without their record: `cancelled`, or `dropped` after a week of failures.",
            ("cause",),
        )
        self.published = self.counter(
            "penstock_delayed_published_total", "Delayed records that this node has published.", ("topic",)
        )
        self.lateness = self.seconds(
            "penstock_delayed_lateness_seconds",
            "From the time that a delayed record was due until its transaction was committed.",
        )
        self.load_failures = self.counter(
            "penstock_delayed_load_failures_total",
            "Times that a delay coordinator's log could not be read; it is tried again.",
            ("partition",),
        )


class DelayObserver:
    """Observes all delay coordinators of a node. `on_due` is called in the middle of a coordinator's step."""

    def __init__(self, metrics: DelayMetrics, on_due: Callable[[DelayCoordinator], None]) -> None:
        self._metrics = metrics
        self._scheduled = metrics.scheduled.of()
        self._finished = {cause: metrics.finished.of(cause.name.lower()) for cause in DelayFinish}
        self._on_due = on_due

    def on_fact(self, machine: DelayCoordinator, fact: DelayFact, *, is_new: bool) -> None:  # noqa: ARG002
        """A fact is about to become part of the state."""
        if is_new and isinstance(fact, DelaysStored):
            self._scheduled.count += len(fact.records.ids)
        elif is_new and isinstance(fact, DelaysFinished):
            self._finished[fact.cause].count += len(fact.ids)

    def on_load_failed(self, partition: TopicPartition) -> None:
        self._metrics.load_failures.of(partition).count += 1

    def on_closed(self, machine: DelayCoordinator) -> None:
        """The coordinator with this state was closed."""

    def on_event(self, event: DelayEvent) -> None:
        match event:
            case DelaysDue():
                self._on_due(event.machine)
            case DelaysDropped():
                events.warning("delay.records_dropped", topic=event.topic, records=event.records)
            case _:
                assert_never(event)
