"""Where the logs of a partition start: what may be gone from the front, and what must stay gone.

    DeleteRecords   below 40                    no log starts behind what was asked for
    acknowledged    low watermark 40            every replica in sync starts there, or later
    from then on    replica 1   40 ──▶ 40       and stays there, as long as it is in sync
    retention       6000 bytes                  so many are left on the replica that deleted

    deleted too much       a log starts behind everything that was asked for, or expired
    deleted uncommitted    a log starts behind its high watermark
    deletion not shared    a deletion is acknowledged, and a replica in sync starts below it
    deletion forgotten     a replica in sync had deleted what was acknowledged, and has it again
    start went back        the log of a replica starts earlier than it did

A replica that was out of sync may not have heard of a deletion, as with Kafka; from the moment at which
it is seen to have heard of it, it counts.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Deletions:
    # The highest offset that somebody asked for, and the highest that was acknowledged.
    asked: int = 0
    acknowledged: int = 0
    # In sync since they have deleted what was acknowledged.
    holders: dict[int, None] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class LogStartChecker:
    """What clients deleted from the front of partitions, and where the logs of all replicas start."""

    anomalies: list[str] = field(default_factory=list)
    deletions: int = 0
    # How much of a log retention leaves at least; -1: everything.
    retention_bytes: int = -1
    _partitions: dict[Hashable, _Deletions] = field(default_factory=dict)

    def asking(self, partition: Hashable, offset: int) -> None:
        """A client asks for the deletion of everything below `offset`."""
        deletions = self._of(partition)
        deletions.asked = max(deletions.asked, offset)

    def deletable(self, partition: Hashable) -> int:
        """Where a log may start at most."""
        return self._of(partition).asked

    def acknowledged(self, partition: Hashable, start: int, synced: Mapping[int, int]) -> None:
        """A leader tells a client where the log starts now; the starts of the replicas in sync."""
        self.deletions += 1
        deletions = self._of(partition)
        if start <= deletions.acknowledged:
            return
        deletions.acknowledged = start
        deletions.holders = {node: None for node, found in synced.items() if found >= start}
        for node, found in synced.items():
            if found < start:
                self._note(
                    f"deletion not shared: {partition} starts at {found} on {node}, which is in sync, "
                    f"though everything below {start} was acknowledged as deleted"
                )

    def retained(
        self, partition: Hashable, node: int, start: int, high_watermark: int, size_bytes: int | None
    ) -> None:
        """The log of a replica starts there, and so much is left of it; None: it was cut meanwhile.

        The others may follow.
        """
        deletions = self._of(partition)
        if start > high_watermark:
            self._note(
                f"deleted uncommitted: {partition} starts at {start} on {node}, "
                f"behind its high watermark {high_watermark}"
            )
        if self.retention_bytes >= 0 and (size_bytes is None or size_bytes >= self.retention_bytes):
            deletions.asked = max(deletions.asked, start)

    def started(self, partition: Hashable, starts: Mapping[int, int], isr: Collection[int]) -> None:
        """The logs of these replicas start there; those in `isr` are in sync."""
        deletions = self._of(partition)
        for node, start in starts.items():
            if start > deletions.asked:
                self._note(
                    f"deleted too much: {partition} starts at {start} on {node}, "
                    f"and nothing but what is below {deletions.asked} was deleted, or too much"
                )
            before = deletions.starts.get(node, 0)
            if start < before:
                self._note(f"start went back: {partition} on {node} from {before} to {start}")
            deletions.starts[node] = start
            self._look_at_holder(partition, deletions, node, start, is_in_sync=node in isr)

    def _look_at_holder(
        self, partition: Hashable, deletions: _Deletions, node: int, start: int, *, is_in_sync: bool
    ) -> None:
        if not is_in_sync:
            deletions.holders.pop(node, None)
        elif start >= deletions.acknowledged:
            deletions.holders[node] = None
        elif node in deletions.holders:
            self._note(
                f"deletion forgotten: {partition} starts at {start} on {node}, which had deleted "
                f"everything below {deletions.acknowledged} and was in sync since"
            )

    def forget(self, partition: Hashable, node: int) -> None:
        """The files of a node were damaged: it may begin anew."""
        deletions = self._of(partition)
        deletions.holders.pop(node, None)
        deletions.starts.pop(node, None)

    def _of(self, partition: Hashable) -> _Deletions:
        return self._partitions.setdefault(partition, _Deletions())

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
