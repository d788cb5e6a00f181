"""Offset lookups by time and by leader epoch, and deleting records from the front of a log."""

import enum
from typing import NamedTuple

from penstock.broker.lease import NO_LEASE, BrokerLease
from penstock.broker.partitions import FollowerPartition, LeaderPartition, SegmentVerifier
from penstock.core.model import (
    ApiError,
    CorruptionError,
    ErrorKind,
    LeaderEpoch,
    Offset,
    StorageError,
    Timestamp,
)
from penstock.runtime import Runtime
from penstock.storage.log import DamagedRange, SuspectSegment


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


class OffsetLookup:
    """Looks up positions in a partition, while the broker has its lease."""

    def __init__(self, runtime: Runtime, lease: BrokerLease) -> None:
        self._clock = runtime.clock
        self._lease = lease
        self._verifier = SegmentVerifier(runtime)

    def find(
        self, partition: LeaderPartition, moment: int, *, read_committed: bool, leader_epoch: int = -1
    ) -> ListedOffset | ApiError:
        """The position for a special timestamp or a time; -1 if nothing visible is there."""
        refused = self.check(partition, leader_epoch)
        if refused is not None:
            return refused
        if read_committed and partition.log.is_unsure and partition.has_other_replicas:
            return UNSURE
        end = partition.log.last_stable_offset if read_committed else partition.high_watermark
        try:
            return self._find(partition, moment, end)
        except CorruptionError as error:
            if isinstance(error, SuspectSegment):
                self._verifier.suspect(partition, max(error.segment, partition.log.start))
            elif isinstance(error, DamagedRange) and not partition.has_other_replicas:
                # As for Fetch: a client that tried again would do so for ever.
                return ApiError(ErrorKind.CORRUPT_BATCH, str(error))
            return ApiError(ErrorKind.DAMAGED_LOG, str(error))
        except StorageError as error:
            return ApiError(ErrorKind.STORAGE_FAILED, str(error))

    def _find(self, partition: LeaderPartition, moment: int, end: Offset) -> ListedOffset | ApiError:
        log = partition.log
        match moment:
            case ListOffsetsTimestamp.LATEST:
                if not partition.is_established:
                    return NOT_ESTABLISHED
                return ListedOffset(end, -1, partition.leader_epoch)
            case ListOffsetsTimestamp.EARLIEST | ListOffsetsTimestamp.EARLIEST_LOCAL:
                return ListedOffset(log.start, -1, self._epoch_at(partition, log.start))
            case ListOffsetsTimestamp.LATEST_TIERED:
                return NO_OFFSET
            case ListOffsetsTimestamp.MAX_TIMESTAMP:
                return self._at(partition, log.max_timestamp, end)
            case _ if moment < 0:
                return ApiError(ErrorKind.INVALID_REQUEST, f"unknown special timestamp {moment}")
            case _:
                return self._at(partition, Timestamp(moment), end)

    def _at(self, partition: LeaderPartition, timestamp: Timestamp, end: Offset) -> ListedOffset | ApiError:
        if timestamp < 0:
            return NO_OFFSET
        found = partition.log.offset_for_timestamp(timestamp)
        if found is None:
            return NO_OFFSET
        if found.offset >= end:
            # Consumers may have seen it already, at the old leader.
            return NO_OFFSET if partition.is_established else NOT_ESTABLISHED
        return ListedOffset(found.offset, found.timestamp, self._epoch_at(partition, found.offset))

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

    def delete_before(self, partition: LeaderPartition, offset: int) -> Offset | ApiError:
        """Delete the records below an offset (-1: all that consumers may see); returns the new log start.

        Followers follow; `when_deleted` of the partition says when those in sync have.
        """
        refused = self.check(partition)
        if refused is not None:
            return refused
        target = partition.high_watermark if offset == -1 else Offset(offset)
        if not 0 <= target <= partition.high_watermark:
            return ApiError(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the high watermark {partition.high_watermark}",
            )
        try:
            start = partition.log.delete_records(target)
        except SuspectSegment as error:
            self._verifier.suspect(partition, max(error.segment, partition.log.start))
            return ApiError(ErrorKind.DAMAGED_LOG, str(error))
        except StorageError as error:
            return ApiError(ErrorKind.STORAGE_FAILED, str(error))
        partition.log_start_moved()
        return start

    def check(self, partition: LeaderPartition, leader_epoch: int = -1) -> ApiError | None:
        """The error if this node may not answer for the partition, or not in that leader epoch."""
        if self._clock.now() >= self._lease.until:
            return NO_LEASE
        return check_leader_epoch(partition, leader_epoch)


def check_leader_epoch(partition: LeaderPartition | FollowerPartition, leader_epoch: int) -> ApiError | None:
    """The error if a client's leader epoch is not the current one."""
    if partition.stopped is not None:
        return partition.stopped
    if leader_epoch in (-1, partition.leader_epoch):
        return None
    older = leader_epoch < partition.leader_epoch
    return ApiError(ErrorKind.FENCED_LEADER_EPOCH if older else ErrorKind.UNKNOWN_LEADER_EPOCH)
