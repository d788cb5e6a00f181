"""Rewrites the log of a coordinator, to keep it about as short as its state.

The log holds every fact there ever was, the state only the last one per key. When the log
has grown to several times the state, the state is written once more at its end, a portion per
turn of the loop, and everything before that is deleted.

    start ─────── old records ───────┬─ state, written again ─┬── end
                                     └► the new log start, once all of this is committed

A key that changes meanwhile also has its new record behind the new log start, so everything that
is deleted was superseded, whatever the order. A marker changes keys by records before it: the coordinator
writes those again before a marker that comes meanwhile.

A rewrite that did not end leaves copies behind records that are later than what they copy. Whoever reads the
log next writes those once more (see `core.groups.offset_facts`), or compaction would keep the copies.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from penstock.broker.partitions import LeaderPartition
from penstock.core.model import Offset, StorageError
from penstock.observability import log as events
from penstock.runtime import Timers
from penstock.storage.log import PartitionLog

PORTION = 500
# The log may grow to this many times the state, which bounds what rewriting adds to all writes.
GROWTH_MAX = 4


class SnapshotSource(Protocol):
    """The part of a machine that the rewrite needs."""

    def size(self) -> int:
        """How many facts `snapshot` has, about."""

    def snapshot(self) -> Iterator[Any]:
        """The durable state as facts, each as it is when it is asked for; applying them again is harmless."""


class RewritableLog(Protocol):
    """The part of a coordinator that the rewrite needs."""

    @property
    def partition(self) -> LeaderPartition: ...
    @property
    def machine(self) -> Any: ...

    def append(self, facts: Sequence[Any]) -> bool: ...


class CoordinatorRewrite(Protocol):
    """One rewrite under way, of whatever kind."""

    def start(self) -> None: ...

    def cancel(self) -> None: ...


class LogRewrite:
    """One rewrite under way."""

    def __init__(self, coordinator: RewritableLog, timers: Timers, done: Callable[[], None]) -> None:
        self._coordinator = coordinator
        self._timers = timers
        self._done = done
        self._start = coordinator.partition.log.end
        self._facts = coordinator.machine.snapshot()
        self._cancelled = False

    @staticmethod
    def is_due(log: PartitionLog, machine: SnapshotSource, records_min: int) -> bool:
        records = log.end - log.start
        return records >= records_min and records >= GROWTH_MAX * machine.size()

    def start(self) -> None:
        self._timers.soon(self._step)

    def cancel(self) -> None:
        """Stop: the machine is being dropped; what was written stays and does no harm."""
        self._cancelled = True

    def _step(self) -> None:
        if self._cancelled:
            return
        portion = list(islice(self._facts, PORTION))
        if portion:
            if self._coordinator.append(portion):
                self._timers.soon(self._step)
            return
        partition = self._coordinator.partition
        if partition.when_acknowledged(partition.log.end, self._committed):
            self._cut()

    def _committed(self, error: object) -> None:
        if error is None and not self._cancelled:
            self._cut()

    def _cut(self) -> None:
        cut_log(self._coordinator.partition, self._start)
        self._done()


def cut_log(partition: LeaderPartition, start: Offset) -> None:
    """Delete what was written again."""
    name = str(partition.name)
    try:
        partition.log.delete_records(start)
    except StorageError as error:
        events.warning("coordinator.log_rewrite_failed", partition=name, error=error)
    else:
        events.info("coordinator.log_rewritten", partition=name, start=start)
        partition.log_start_moved()


def rewrite_if_due(
    coordinator: RewritableLog, timers: Timers, records_min: int, done: Callable[[], None]
) -> CoordinatorRewrite | None:
    """The rewrite of a machine that can be written as a snapshot."""
    is_due = LogRewrite.is_due(coordinator.partition.log, coordinator.machine, records_min)
    return LogRewrite(coordinator, timers, done) if is_due else None
