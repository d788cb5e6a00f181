"""What a run visited: the events of its nodes, transitions of partitions, and what their logs did.

    isr.shrunk, isr.grew, elr.filled, elr.cleared          a partition that clients use, from one committed
    election.lost, .clean, .eligible, .moved, .unclean      image to the next
    log.checkpoints, log.rolls, log.truncations …           sums over all logs of all incarnations
    scrub.passes, scrub.damaged_ranges                      what was verified in the background, and found
    group.commits, transaction.committed, answers.checked   what clients did
    partition.tail_truncated, quorum.leader_changed …       every event that a node reports, by its name

A run that visits little proves little, and a kind of run in which something never happens says nothing
about it. The names are sorted and the counts follow from the seed, so that runs can be compared.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from penstock.broker.partitions.log_scrubber import ScrubMetrics
from penstock.core.metadata import NO_LEADER
from penstock.core.metadata import Partition as PartitionState
from penstock.observability import LogFunction, LogLevel
from penstock.observability import log as event_log
from penstock.storage.log import PartitionLog

LOG_COUNTERS = ("checkpoints", "rolls", "truncations", "compactions", "indexes_rebuilt")


class Coverage:
    """Counts by name what happened in one run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def partition_changed(self, before: PartitionState, after: PartitionState) -> None:
        """The committed state of a partition has changed."""
        names = [
            ("isr.shrunk", any(node not in after.isr for node in before.isr)),
            ("isr.grew", any(node not in before.isr for node in after.isr)),
            ("elr.filled", any(node not in before.elr for node in after.elr)),
            ("elr.cleared", bool(before.elr) and not after.elr),
            ("reassignment.begun", after.is_moving and not before.is_moving),
            ("reassignment.ended", before.is_moving and not after.is_moving),
        ]
        self.counts.update(name for name, happened in names if happened)
        if before.leader != after.leader:
            self.counts[f"election.{_election(before, after)}"] += 1

    def add_log(self, log: PartitionLog) -> None:
        """What a log did since it was opened."""
        for name in LOG_COUNTERS:
            self.add(f"log.{name}", getattr(log.stats, name))

    def add_scrub(self, metrics: ScrubMetrics) -> None:
        """What a node verified in the background."""
        self.add("scrub.passes", int(metrics.passes.count))
        self.add("scrub.damaged_ranges", int(metrics.damaged_ranges.count))

    def add(self, name: str, count: int) -> None:
        if count:
            self.counts[name] += count

    def visited(self) -> dict[str, int]:
        return dict(sorted(self.counts.items()))

    @contextmanager
    def events_counted(self) -> Iterator[None]:
        """Count the events of all nodes; they go on to wherever they went before."""
        names = [level.name.lower() for level in LogLevel if level is not LogLevel.DEBUG]
        former: dict[str, LogFunction] = {name: getattr(event_log, name) for name in names}
        for name, write in former.items():
            setattr(event_log, name, self._counting(write))
        try:
            yield
        finally:
            for name, write in former.items():
                setattr(event_log, name, write)

    def _counting(self, write: LogFunction) -> LogFunction:
        # A run has one thread. Others of the process may have nodes that are none of its own.
        thread = get_ident()

        def event(name: str, /, **fields: object) -> None:
            if get_ident() == thread:
                self.counts[name] += 1
            write(name, **fields)

        return event


def _election(before: PartitionState, after: PartitionState) -> str:
    if after.leader == NO_LEADER:
        return "lost"
    if after.unclean_epoch > before.unclean_epoch:
        return "unclean"
    if after.leader not in before.isr:
        return "eligible"
    return "clean" if before.leader == NO_LEADER else "moved"
