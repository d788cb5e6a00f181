"""Whoever may lead next has everything that was acknowledged: at every moment, not only after an election.

    acknowledged ──────────────▶ 17
    in sync         node 1, node 2        each has synced 17 or more
    eligible        node 3                so has this one (KIP-966)

An election that shows a loss needs the right node to fall at the right time. The state that makes it
possible lasts much longer, and is an anomaly by itself:

    ineligible      a replica may be elected, and lacks what was acknowledged
    not counted     a replica is in sync, and the leader does not wait for it
    moved early     a reassignment has ended, and a replica that it added is not in sync
    uncommitted     a voter that lacks a committed entry of the quorum's log could be elected
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class VoterLog(NamedTuple):
    """The log of one voter that is up: where it ends, and whether it has the entry in question.

    One that is in doubt of its log elects somebody only together with all others.
    """

    last_term: int
    last: int
    has_entry: bool
    is_doubtful: bool = False


@dataclass(slots=True)
class EligibilityChecker:
    """What was acknowledged of each partition, and which replicas could be asked for it."""

    anomalies: list[str] = field(default_factory=list)
    _acknowledged: dict[Hashable, int] = field(default_factory=dict)

    def acknowledged(self, partition: Hashable, end: int) -> None:
        """Everything below `end` was acknowledged, or is below a high watermark."""
        if end > self._acknowledged.get(partition, 0):
            self._acknowledged[partition] = end

    def may_lead(self, partition: Hashable, how: str, synced: Mapping[int, int]) -> None:
        """These nodes may be elected; the log of each is synced up to there."""
        end = self._acknowledged.get(partition, 0)
        for node, position in synced.items():
            if position < end:
                self._note(
                    f"ineligible: {node} {how} of {partition} with a log that is synced up to {position}, "
                    f"though all below {end} was acknowledged"
                )

    def counted(self, partition: Hashable, isr: Iterable[int], counting: Collection[int]) -> None:
        """The committed ISR, and those for whom the leader of that epoch waits before it acknowledges."""
        for node in isr:
            if node not in counting:
                self._note(
                    f"not counted: {node} is in sync of {partition}, and the leader waits for "
                    f"{sorted(counting)} only"
                )

    def moved(self, partition: Hashable, added: Iterable[int], isr: Collection[int]) -> None:
        """A reassignment has ended, with this ISR: the old replicas are gone."""
        for node in added:
            if node not in isr:
                self._note(f"moved early: {node} is a replica of {partition} now, and not in sync")

    def committed(self, index: int, voters: int, logs: Mapping[int, VoterLog]) -> None:
        """A leader calls an entry committed; `logs` are those of the voters that are up, out of `voters`.

        A vote goes to whoever has a log at least as up to date as one's own (section 5.4.1 of Raft).
        """
        for node, log in logs.items():
            if log.has_entry:
                continue
            votes = [other for other in logs.values() if log[:2] >= other[:2]]
            sure = sum(not other.is_doubtful for other in votes)
            if sure > voters // 2 or len(votes) == voters:
                self._note(
                    f"uncommitted: {node} lacks entry {index}, which was called committed, and could be "
                    f"elected by {len(votes)} of {voters} voters"
                )

    def _note(self, anomaly: str) -> None:
        if anomaly not in self.anomalies:
            self.anomalies.append(anomaly)
