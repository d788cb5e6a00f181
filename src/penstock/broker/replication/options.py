"""Options and metrics of replication."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import Command, Reply
from penstock.core.model import NodeId
from penstock.observability import Metrics

# Submits a command to the controller, wherever it is.
Submit: TypeAlias = Callable[[Command, Callable[[Reply], None]], None]


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """Timeouts and sizes of fetches between followers and leaders."""

    # How long a leader holds a fetch that finds nothing new.
    fetch_wait_ms: int = 500
    # How much longer a follower waits before it restarts the session.
    answer_timeout_ms: int = 2_000
    partition_bytes_max: int = 1024 * 1024
    answer_bytes_max: int = 4 * 1024 * 1024
    # How long a follower pauses a partition that could not be read or written.
    trouble_ms: int = 1_000
    proposal_retry_ms: int = 250


class ReplicationMetrics(Metrics):
    """The lag of followers of this node, and what was sent and received."""

    def __init__(self) -> None:
        super().__init__()
        self.lag = self.gauge(
            "penstock_replication_lag_messages",
            "Records that a follower has not fetched yet, of partitions led here; all if it never did.",
            ("topic", "partition", "follower"),
        )
        self.under_replicated = self.gauge(
            "penstock_under_replicated_partitions",
            "Partitions led here with replicas that are not in sync.",
        )
        self.under_minimum = self.gauge(
            "penstock_under_minimum_partitions",
            "Partitions led here that take no writes with acks=all, since too few replicas are in sync.",
        )
        self.fetches = self.counter(
            "penstock_replication_fetches_total", "Fetch responses sent to followers."
        ).of()
        self.bytes_sent = self.counter(
            "penstock_replication_bytes_sent_total", "Bytes of batches sent to followers."
        ).of()
        self.bytes_received = self.counter(
            "penstock_replication_bytes_received_total", "Bytes of batches received from leaders."
        ).of()
        self.proposals = self.counter(
            "penstock_isr_proposals_total",
            "Changes of in-sync replicas that were proposed, by outcome.",
            ("outcome",),
        )
        self._led: dict[LeaderPartition, tuple[NodeId, ...]] = {}

    def watch(self, led: Callable[[], Iterable[LeaderPartition]]) -> None:
        """Count the partitions that `led` returns, at each scrape."""
        self.under_replicated.read(lambda: sum(map(_lacks_replicas, led())))
        self.under_minimum.read(lambda: sum(not partition.has_min_isr for partition in led()))

    def set_partitions(self, led: Iterable[LeaderPartition]) -> None:
        """Export the lag of every follower of these partitions, and of no others."""
        now = {partition: partition.isr.assignment.replicas for partition in led}
        for partition, replicas in self._led.items():
            if now.get(partition) != replicas:
                for follower in replicas:
                    self.lag.forget(*partition.name, follower)
        for partition, replicas in now.items():
            if self._led.get(partition) != replicas:
                for follower in replicas:
                    if follower != partition.isr.me:
                        self.lag.read(_lag_of(partition, follower), *partition.name, follower)
        self._led = now


def _lacks_replicas(partition: LeaderPartition) -> bool:
    state = partition.isr.assignment
    return len(state.isr) < len(state.replicas)


def _lag_of(partition: LeaderPartition, node: NodeId) -> Callable[[], int]:
    def read() -> int:
        follower, log = partition.isr.follower(node), partition.log
        fetched = log.start if follower is None else max(follower.fetched, log.start)
        return max(0, log.end - fetched)

    return read
