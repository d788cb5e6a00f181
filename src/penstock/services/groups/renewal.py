"""Keeping the log of a coordinator as short as its state.

The log holds every commit there ever was, the state only the last one per key. When the log
has grown to several times the state, the state is written once more at its end, a portion per
turn of the loop, and everything before that is deleted.

    start ─────── old records ───────┬─ state, written again ─┬── end
                                     └► the new log start, once all of this is acknowledged

A key that changes meanwhile has its new record behind the first of these portions too, so the
part that goes was superseded whatever the order.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Protocol

from penstock.core.groups import Fact, GroupImage
from penstock.core.model import PenstockError, StorageError
from penstock.observability import log as events
from penstock.runtime import Timers
from penstock.services.partitions import Partition

PORTION = 500
# The log may grow to this many times the state, which bounds what renewal adds to all writes.
GROWTH_MAX = 4


class Renewable(Protocol):
    """A coordinator, as far as renewal goes."""

    partition: Partition

    @property
    def image(self) -> GroupImage: ...

    def append(self, facts: Sequence[Fact]) -> bool: ...


class Renewal:
    """One renewal under way."""

    def __init__(self, host: Renewable, timers: Timers, done: Callable[[], None]) -> None:
        self._host = host
        self._timers = timers
        self._done = done
        self._start = host.partition.log.end
        self._facts = _facts_of(host.image)
        self._cancelled = False

    @staticmethod
    def is_due(partition: Partition, image: GroupImage, records_min: int) -> bool:
        records = partition.log.end - partition.log.start
        return records >= records_min and records >= GROWTH_MAX * _size(image)

    def start(self) -> None:
        self._timers.soon(self._step)

    def cancel(self) -> None:
        """The machine is being dropped; what was written again stays and does no harm."""
        self._cancelled = True

    def _step(self) -> None:
        if self._cancelled:
            return
        portion = list(islice(self._facts, PORTION))
        if portion:
            if self._host.append(portion):
                self._timers.soon(self._step)
            return
        partition = self._host.partition
        if partition.when_acknowledged(partition.log.end, self._acknowledged):
            self._cut()

    def _acknowledged(self, error: PenstockError | None) -> None:
        if error is None and not self._cancelled:
            self._cut()

    def _cut(self) -> None:
        partition = self._host.partition
        try:
            partition.log.delete_records(self._start)
        except StorageError as error:
            events.warning("groups.log_not_cut", partition=str(partition.name), error=error)
        else:
            events.info("groups.log_renewed", partition=str(partition.name), start=self._start)
            partition.log_start_moved()
        self._done()


def _size(image: GroupImage) -> int:
    return len(image.groups) + sum(map(len, image.offsets.values()))


def _facts_of(image: GroupImage) -> Iterator[Fact]:
    """The state as it is when each fact is asked for; keys that are new since the call are left out."""
    group_ids = list(image.groups)
    keys = [(group_id, partition) for group_id, offsets in image.offsets.items() for partition in offsets]
    groups = (image.groups.get(group_id) for group_id in group_ids)
    offsets = (image.offsets_of(group_id).get(partition) for group_id, partition in keys)
    return (fact for fact in chain(groups, offsets) if fact is not None)
