"""No answer is older than what somebody was told before the question was asked.

    producer   ── acknowledged up to 17, by the leader of epoch 5 ──┐
    consumer                                                        └─ asks ── 12, from epoch 4: stale

A leader that was stopped or cut off does not know that there is another one. Its answers are right for
the time at which it last heard of the others, and wrong for whoever compares them.

    stale leader    a leader of an older epoch answers than had answered before the question
    stale end       an end is returned below what was acknowledged before the question
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple


class KnownState(NamedTuple):
    """What clients had been told of a partition when a question was asked."""

    epoch: int
    end: int


NOTHING_KNOWN = KnownState(-1, -1)


@dataclass(slots=True)
class FreshnessChecker:
    """What clients were told of partitions, and by the leaders of which epochs."""

    is_active: bool = False
    anomalies: list[str] = field(default_factory=list)
    answers: int = 0
    _known: dict[Hashable, KnownState] = field(default_factory=dict)

    def received(self, partition: Hashable, epoch: int, end: int) -> None:
        """A client has an answer of the leader of an epoch: everything below `end` is safe."""
        known = self._known.get(partition, NOTHING_KNOWN)
        self._known[partition] = KnownState(max(epoch, known.epoch), max(end, known.end))

    def asking(self, partition: Hashable) -> KnownState:
        """A client sends a question."""
        return self._known.get(partition, NOTHING_KNOWN)

    def answered(
        self, partition: Hashable, known: KnownState, node: int, epoch: int, end: int | None = None
    ) -> None:
        """A node writes the response to a question that was asked when clients knew `known`."""
        self.answers += 1
        if not self.is_active:
            return
        if epoch < known.epoch:
            self._note(
                f"stale leader: {node} answers for {partition} in epoch {epoch}, "
                f"though epoch {known.epoch} had answered before"
            )
        if end is not None and end < known.end:
            self._note(
                f"stale end: {node} says that {partition} ends at {end}, "
                f"though all below {known.end} was acknowledged before"
            )

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
