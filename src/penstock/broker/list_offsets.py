"""Offset lookups by time and by leader epoch.

The record at a time is inside a batch. A large batch, or one that unpacks to much, is looked through by a
worker while the loop goes on; then the result comes later (`PendingLookup`).
"""

import enum
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.broker.lease import NO_LEASE, BrokerLease
from penstock.broker.partitions import FollowerPartition, LeaderPartition, SegmentVerifier
from penstock.broker.worker_share import WorkersBusy, WorkerShare
from penstock.core.model import (
    ApiError,
    CorruptionError,
    ErrorKind,
    LeaderEpoch,
    Offset,
    StorageError,
    Timestamp,
)
from penstock.runtime import ExecutorFull, Runtime
from penstock.storage.log import BatchToSearch, DamagedRange, SuspectSegment, TimestampOffset, first_at

# Batches of a lookup that workers look through, if headers claim times that their records do not have.
SEARCHES_MAX = 100


class ListOffsetsTimestamp(enum.IntEnum):
    """The special timestamps of ListOffsets: negative numbers that ask for a position."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class ListedOffset(NamedTuple):
    """The offset, time and leader epoch of a record; -1 for what does not exist."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


NO_OFFSET = ListedOffset(-1)
# A new leader returns this until its high watermark has reached what the old one may have exposed.
NOT_ESTABLISHED = ApiError(ErrorKind.OFFSET_NOT_AVAILABLE)
# The log was opened without some of its records: another replica is to tell what is committed. If there is
# none, what can be known is all there is.
UNSURE = ApiError(ErrorKind.DAMAGED_LOG, "its transactions are not known before it is repaired")


class PendingLookup:
    """A lookup whose result comes later. The caller must set its callback before anything else."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: Callable[[ListedOffset | ApiError], None] = _ignore


class TimeLookup(NamedTuple):
    """What was asked for, and how far the search has come."""

    partition: LeaderPartition
    moment: int
    read_committed: bool
    leader_epoch: int
    # Earlier batches have no such record.
    start: Offset = Offset(0)
    searches: int = 0


class OffsetLookup:
    """Looks up positions in a partition, while the broker has its lease."""

    def __init__(self, runtime: Runtime, lease: BrokerLease, workers: WorkerShare) -> None:
        self._clock = runtime.clock
        self._workers = workers
        self._lease = lease
        self._verifier = SegmentVerifier(runtime)

    def find(
        self, partition: LeaderPartition, moment: int, *, read_committed: bool, leader_epoch: int = -1
    ) -> ListedOffset | ApiError | PendingLookup:
        """The position for a special timestamp or a time; -1 if nothing visible is there."""
        return self._find(TimeLookup(partition, moment, read_committed, leader_epoch))

    def _find(self, lookup: TimeLookup) -> ListedOffset | ApiError | PendingLookup:
        partition = lookup.partition
        refused = self.check(partition, lookup.leader_epoch)
        if refused is not None:
            return refused
        if lookup.read_committed and partition.log.is_unsure and partition.has_other_replicas:
            return UNSURE
        try:
            return self._position(lookup)
        except (CorruptionError, StorageError) as error:
            return self._error(partition, error)

    def _error(self, partition: LeaderPartition, error: Exception) -> ApiError:
        if isinstance(error, WorkersBusy | ExecutorFull):
            return ApiError(ErrorKind.TIMED_OUT, str(error))
        if not isinstance(error, CorruptionError):
            return ApiError(ErrorKind.STORAGE_FAILED, str(error))
        if isinstance(error, SuspectSegment):
            self._verifier.suspect(partition, max(error.segment, partition.log.start))
        elif isinstance(error, DamagedRange) and not partition.has_other_replicas:
            # As for Fetch: a client that tried again would do so for ever.
            return ApiError(ErrorKind.CORRUPT_BATCH, str(error))
        return ApiError(ErrorKind.DAMAGED_LOG, str(error))

    def _position(self, lookup: TimeLookup) -> ListedOffset | ApiError | PendingLookup:
        partition, log, moment = lookup.partition, lookup.partition.log, lookup.moment
        match moment:
            case ListOffsetsTimestamp.LATEST:
                if not partition.is_established:
                    return NOT_ESTABLISHED
                return ListedOffset(_end(lookup), -1, partition.leader_epoch)
            case ListOffsetsTimestamp.EARLIEST | ListOffsetsTimestamp.EARLIEST_LOCAL:
                return ListedOffset(log.start, -1, self._epoch_at(partition, log.start))
            case ListOffsetsTimestamp.LATEST_TIERED:
                return NO_OFFSET
            case ListOffsetsTimestamp.MAX_TIMESTAMP:
                return self._at(lookup, log.max_timestamp)
            case _ if moment < 0:
                return ApiError(ErrorKind.INVALID_REQUEST, f"unknown special timestamp {moment}")
            case _:
                return self._at(lookup, Timestamp(moment))

    def _at(self, lookup: TimeLookup, timestamp: Timestamp) -> ListedOffset | ApiError | PendingLookup:
        if timestamp < 0:
            return NO_OFFSET
        found = lookup.partition.log.search_time(timestamp, lookup.start)
        if isinstance(found, BatchToSearch):
            return self._search(lookup, timestamp, found)
        return NO_OFFSET if found is None else self._listed(lookup, found)

    def _listed(self, lookup: TimeLookup, found: TimestampOffset) -> ListedOffset | ApiError:
        partition = lookup.partition
        if found.offset >= _end(lookup):
            # Consumers may have seen it already, at the old leader.
            return NO_OFFSET if partition.is_established else NOT_ESTABLISHED
        return ListedOffset(found.offset, found.timestamp, self._epoch_at(partition, found.offset))

    def _search(
        self, lookup: TimeLookup, timestamp: Timestamp, batch: BatchToSearch
    ) -> ApiError | PendingLookup:
        """Have a worker look through a batch, and go on behind it if it has no such record."""
        partition = lookup.partition
        if lookup.searches >= SEARCHES_MAX:
            return ApiError(
                ErrorKind.TIMED_OUT, f"{SEARCHES_MAX} batches have no record of the time they claim"
            )
        pending = PendingLookup()

        def worked(found: TimestampOffset | None) -> None:
            refused = self.check(partition, lookup.leader_epoch)
            if refused is not None:
                pending.done(refused)
            elif found is not None:
                pending.done(self._listed(lookup, found))
            else:
                result = self._find(lookup._replace(start=batch.end, searches=lookup.searches + 1))
                if isinstance(result, PendingLookup):
                    result.done = pending.done
                else:
                    pending.done(result)

        def failed(error: Exception) -> None:
            if isinstance(error, CorruptionError):
                self._verifier.suspect(partition, max(lookup.start, partition.log.start))
            pending.done(self._error(partition, error))

        # Who asks for them did not write them: a topic's batches wait behind each other.
        client = ("lookup", partition.name.topic)
        work = partial(first_at, batch.content, timestamp, lookup.start)
        self._workers.unpack(client, work, worked, failed, len(batch.content))
        return pending

    def _epoch_at(self, partition: LeaderPartition, offset: Offset) -> int:
        return partition.log.epochs.epoch_at(offset)

    def end_of_epoch(
        self, partition: LeaderPartition, epoch: int, leader_epoch: int
    ) -> tuple[int, int] | ApiError:
        """The largest epoch not above `epoch`, and where it ended; (-1, -1) if there is none."""
        refused = self.check(partition, leader_epoch)
        if refused is not None:
            return refused
        if epoch == partition.leader_epoch:
            return epoch, partition.log.end
        found = partition.log.end_offset_for(LeaderEpoch(epoch))
        return (-1, -1) if found is None else (found.epoch, found.start)

    def check(self, partition: LeaderPartition, leader_epoch: int = -1) -> ApiError | None:
        """The error if this node may not answer for the partition, or not in that leader epoch."""
        if self._clock.now() >= self._lease.until:
            return NO_LEASE
        return check_leader_epoch(partition, leader_epoch)


def _ignore(_: ListedOffset | ApiError) -> None:
    """Do nothing: the caller has not set a callback yet."""


def _end(lookup: TimeLookup) -> Offset:
    """Up to where the reader sees the log."""
    partition = lookup.partition
    return partition.log.last_stable_offset if lookup.read_committed else partition.high_watermark


def check_leader_epoch(partition: LeaderPartition | FollowerPartition, leader_epoch: int) -> ApiError | None:
    """The error if a client's leader epoch is not the current one."""
    if partition.stopped is not None:
        return partition.stopped
    if leader_epoch in (-1, partition.leader_epoch):
        return None
    older = leader_epoch < partition.leader_epoch
    return ApiError(ErrorKind.FENCED_LEADER_EPOCH if older else ErrorKind.UNKNOWN_LEADER_EPOCH)
