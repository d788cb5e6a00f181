"""Transactions that should have ended long ago.

A coordinator aborts a transaction after its timeout, which is `transaction.max.timeout.ms` at most. One that
is open in a partition for longer than that, and five minutes more, has no coordinator that knows of it: it
hangs, and so do the last stable offset and every read_committed consumer. Verification keeps new ones from
hanging; they may come from another system's log, or from a coordinator's log that was lost.

`penstock transaction find-hanging` finds them, and `penstock transaction abort` ends them.
"""

from penstock.broker.partitions import LeaderPartition, ReplicaManager
from penstock.core.model import MILLISECOND, Instant, ProducerId, Timestamp
from penstock.observability import Metrics
from penstock.observability import log as events
from penstock.runtime import Runtime

GRACE_MS = 300_000
CHECK_MS = 60_000


class LateTransactionMetrics(Metrics):
    """Partitions whose last stable offset stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.late = self.gauge(
            "penstock_late_transactions",
            "Transactions of a partition led here that have been silent for longer than any may last.",
            ("topic", "partition"),
        )


class LateTransactions:
    """Looks for late transactions in the partitions that this node leads, once a minute."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: ReplicaManager,
        timeout_ms_max: int,
        metrics: LateTransactionMetrics,
    ) -> None:
        self._clock = runtime.clock
        self._timers = runtime.timers
        self._partitions = partitions
        self._late_ms = timeout_ms_max + GRACE_MS
        self._metrics = metrics
        # Those that were reported, with their first offsets.
        self._reported: dict[LeaderPartition, dict[ProducerId, int]] = {}

    def start(self) -> None:
        self._timers.at(Instant(self._clock.now() + CHECK_MS * MILLISECOND), self._check)

    def _check(self) -> None:
        found: dict[LeaderPartition, dict[ProducerId, int]] = {}
        now = self._clock.wall()
        for partition in self._partitions.led():
            if not partition.log.producers.transactions.is_quiet:
                late = self._late_in(partition, now)
                if late:
                    found[partition] = late
        before, self._reported = self._reported, found
        for partition in before:
            if partition not in found:
                self._metrics.late.forget(*partition.name)
        for partition, late in found.items():
            self._report(partition, late, before.get(partition, {}))
        self.start()

    def _late_in(self, partition: LeaderPartition, now: Timestamp) -> dict[ProducerId, int]:
        """The producers whose transaction is late, and where it begins."""
        producers = partition.log.producers
        late: dict[ProducerId, int] = {}
        for producer_id, first_offset in producers.transactions.ongoing():
            producer = producers.get(producer_id)
            if producer is not None and now - producer.seen_at > self._late_ms:
                late[producer_id] = first_offset
        return late

    def _report(
        self, partition: LeaderPartition, late: dict[ProducerId, int], before: dict[ProducerId, int]
    ) -> None:
        count = len(late)
        self._metrics.late.read(lambda: count, *partition.name)
        for producer_id, first_offset in late.items():
            if before.get(producer_id) != first_offset:
                events.warning(
                    "transaction.late",
                    partition=str(partition.name),
                    producer_id=producer_id,
                    first_offset=first_offset,
                )
