"""The figures of replication."""

from collections.abc import Callable, Iterable

from penstock.core.model import NodeId
from penstock.observability import Metrics
from penstock.services.partitions import Partition


class ReplicationMetrics(Metrics):
    """How far followers are behind this node, and what travels between them."""

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
            "penstock_replication_fetches_total", "Fetches of followers that were answered."
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
        self._led: dict[Partition, tuple[NodeId, ...]] = {}

    def watch(self, led: Callable[[], Iterable[Partition]]) -> None:
        """Count the partitions that `led` answers, at each scrape."""
        self.under_replicated.read(lambda: sum(map(_lacks_replicas, led())))
        self.under_minimum.read(lambda: sum(not partition.has_minimum for partition in led()))

    def follow(self, led: Iterable[Partition]) -> None:
        """Have a lag for every follower of these partitions, and of no others."""
        now = {partition: partition.insync.assignment.replicas for partition in led}
        for partition, replicas in self._led.items():
            if now.get(partition) != replicas:
                for follower in replicas:
                    self.lag.forget(*partition.name, follower)
        for partition, replicas in now.items():
            if self._led.get(partition) != replicas:
                for follower in replicas:
                    if follower != partition.insync.me:
                        self.lag.read(_lag_of(partition, follower), *partition.name, follower)
        self._led = now


def _lacks_replicas(partition: Partition) -> bool:
    state = partition.insync.assignment
    return len(state.isr) < len(state.replicas)


def _lag_of(partition: Partition, node: NodeId) -> Callable[[], int]:
    def read() -> int:
        follower, log = partition.insync.follower(node), partition.log
        fetched = log.start if follower is None else max(follower.fetched, log.start)
        return max(0, log.end - fetched)

    return read
