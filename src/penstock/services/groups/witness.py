"""What a node tells about its groups: lag, rebalances, and events."""

from functools import partial
from typing import assert_never

from penstock.core.groups import (
    Event,
    Fact,
    GroupDeleted,
    GroupImage,
    MemberRemoved,
    OffsetCommitted,
    OffsetDeleted,
    RebalanceCompleted,
    RebalanceStarted,
)
from penstock.core.model import PenstockError, TopicPartition
from penstock.observability import log as events
from penstock.services.groups.consumption import Consumption
from penstock.services.groups.lag import LagReader
from penstock.services.groups.metrics import GroupMetrics


class Witness:
    """Watches the facts and events of all coordinators, for metrics and logs alone."""

    def __init__(self, metrics: GroupMetrics, lags: LagReader, consumption: Consumption) -> None:
        self._metrics = metrics
        self._consumption = consumption
        self._lags = lags
        self._shown: dict[tuple[str, TopicPartition], None] = {}

    def decided(self, image: GroupImage, fact: Fact) -> None:
        """A new fact is about to become part of the state; those read from a log are not new."""
        if isinstance(fact, OffsetCommitted):
            self._consumption.commits(image, fact)

    def applied(self, image: GroupImage, fact: Fact) -> None:
        """A fact has become part of the state."""
        if isinstance(fact, OffsetCommitted):
            if (fact.group_id, fact.partition) not in self._shown:
                self._show(image, fact.group_id, fact.partition)
        elif isinstance(fact, OffsetDeleted):
            self._hide(fact.group_id, fact.partition)
            self._consumption.deleted(image, fact.group_id, fact.partition.topic)
        elif isinstance(fact, GroupDeleted):
            self._metrics.rebalance_seconds.forget(fact.group_id)

    def load_failed(self, partition: TopicPartition, error: PenstockError, retry_ms: int) -> None:
        """A coordinator could not be rebuilt from its log."""
        self._metrics.load_failures.of(partition).count += 1
        events.error("groups.load_failed", partition=str(partition), error=error, retry_ms=retry_ms)

    def forgotten(self, image: GroupImage) -> None:
        """The coordinator with this state is no more."""
        for group_id, offsets in image.offsets.items():
            for partition in offsets:
                self._hide(group_id, partition)

    def happened(self, event: Event) -> None:
        match event:
            case RebalanceStarted():
                events.info(
                    "group.rebalance_started",
                    group=event.group_id,
                    generation=event.generation,
                    reason=event.reason,
                )
            case RebalanceCompleted():
                self._metrics.rebalance_seconds.of(event.group_id).observe(event.elapsed_ns)
                events.info(
                    "group.rebalance_completed",
                    group=event.group_id,
                    generation=event.generation,
                    members=event.members,
                )
            case MemberRemoved():
                events.info(
                    "group.member_removed", group=event.group_id, member=event.member_id, reason=event.reason
                )
            case _:
                assert_never(event)

    def _show(self, image: GroupImage, group_id: str, partition: TopicPartition) -> None:
        self._shown[group_id, partition] = None
        lags, metrics = self._lags, self._metrics
        metrics.lag.read(partial(lags.records, image, group_id, partition), group_id, *partition)
        metrics.lag_seconds.read(partial(lags.seconds, image, group_id, partition), group_id, *partition)

    def _hide(self, group_id: str, partition: TopicPartition) -> None:
        self._shown.pop((group_id, partition), None)
        self._lags.forget(group_id, partition)
        self._metrics.lag.forget(group_id, *partition)
        self._metrics.lag_seconds.forget(group_id, *partition)
