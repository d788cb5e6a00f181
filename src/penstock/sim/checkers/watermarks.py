"""Leaders of a partition: one per leader epoch, and none that lacks what an earlier one showed.

A high watermark guarantees that what lies below it is on every replica that may lead. So

    epoch 4   ──────────────▶ 17          within one epoch it never goes back
    epoch 5            log end ≥ 17       whoever leads next has all of it
              latest  ≥ 17                and never reports a lower end

The last line holds because a new leader reports no end before its own high watermark has
reached the start of its epoch.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Epoch:
    leader: int
    high_watermark: int = -1


@dataclass(slots=True)
class WatermarkChecker:
    """What leaders reported of their partitions, to any client."""

    anomalies: list[str] = field(default_factory=list)
    _epochs: dict[Hashable, dict[int, _Epoch]] = field(default_factory=dict)
    # Up to where producers had an acknowledgement while an epoch was the newest that anybody led in.
    _acknowledged: dict[Hashable, dict[int, int]] = field(default_factory=dict)

    def led(self, partition: Hashable, epoch: int, node: int, log_end: int) -> None:
        """A node begins to lead a partition, with a log that ends there."""
        known = self._epoch(partition, epoch, node)
        if known is None:
            return
        promised, before = self._promised(partition, epoch)
        if log_end < promised:
            self._note(
                f"leader lacks records: {node} leads {partition} in epoch {epoch} with a log that ends at "
                f"{log_end}, though {promised} was the high watermark in epoch {before}"
            )
        # Only what came before its epoch: a node that was cut off leads in epochs that are long over,
        # until it has read the metadata to the end. It has no lease then, and answers nobody.
        ends = self._acknowledged.get(partition, {}).items()
        acknowledged = max((end for newest, end in ends if newest < epoch), default=0)
        if log_end < acknowledged:
            self._note(
                f"leader lacks records: {node} leads {partition} in epoch {epoch} with a log that ends at "
                f"{log_end}, though all below {acknowledged} was acknowledged"
            )

    def acknowledged(self, partition: Hashable, end: int) -> None:
        """A producer's acks=all was acknowledged: all in-sync replicas have what is below `end`."""
        newest = max(self._epochs.get(partition, {}), default=-1)
        ends = self._acknowledged.setdefault(partition, {})
        ends[newest] = max(end, ends.get(newest, 0))

    def showed(self, partition: Hashable, epoch: int, node: int, high_watermark: int) -> None:
        """A leader sent, or could have sent, its high watermark to a client."""
        known = self._epoch(partition, epoch, node)
        if known is None:
            return
        if high_watermark < known.high_watermark:
            self._note(
                f"high watermark went back: {partition} in epoch {epoch} from "
                f"{known.high_watermark} to {high_watermark}"
            )
        known.high_watermark = max(known.high_watermark, high_watermark)

    def told_end(self, partition: Hashable, epoch: int, node: int, end: int) -> None:
        """A leader sent a client the end of the log for consumers."""
        promised, before = self._promised(partition, epoch)
        if end < promised:
            self._note(
                f"stale end: {node} says in epoch {epoch} that {partition} ends at {end}, "
                f"though it was at {promised} in epoch {before}"
            )
        self.showed(partition, epoch, node, end)

    def _epoch(self, partition: Hashable, epoch: int, node: int) -> _Epoch | None:
        known = self._epochs.setdefault(partition, {}).setdefault(epoch, _Epoch(node))
        if known.leader != node:
            self._note(f"two leaders: {known.leader} and {node} both lead {partition} in epoch {epoch}")
            return None
        return known

    def _promised(self, partition: Hashable, epoch: int) -> tuple[int, int]:
        """The highest watermark of any earlier epoch, and which epoch that was."""
        earlier = (
            (known.high_watermark, number)
            for number, known in self._epochs.get(partition, {}).items()
            if number < epoch
        )
        return max(earlier, default=(-1, -1))

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
