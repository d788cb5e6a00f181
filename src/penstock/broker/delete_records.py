"""DeleteRecords: deletes records from the front of logs.

    rows ── by partition ── the most that is asked for ── its log's turn ── start durable ── followers

A deletion is durable before anybody hears of it, which takes a log a few syncs. Few are under way at a time,
whoever asks for how many, and requests take turns: the syncs of producers do not wait behind all of them.
Rows about one partition are one deletion.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from penstock.broker.list_offsets import OffsetLookup
from penstock.broker.partitions import LeaderPartition, SegmentVerifier
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, Offset, StorageError
from penstock.runtime import Runtime
from penstock.storage.log import SuspectSegment

# Logs whose start is being raised at a time.
DELETIONS_MAX = 2
ALL_RECORDS = -1
# The timeout of a request is for other replicas, as in Kafka; the logs here get so much more.
LOCAL_MS = 10_000
OnDeleted: TypeAlias = Callable[[Offset | ApiError], None]
OnAllDeleted: TypeAlias = Callable[[list[Offset | ApiError]], None]
TIMED_OUT = ApiError(ErrorKind.TIMED_OUT, "not all replicas have deleted the records yet")


class RecordDeletion(NamedTuple):
    """The front of a log, to be deleted."""

    partition: LeaderPartition
    target: Offset
    done: OnDeleted


class RecordDeletionService:
    """Deletes records while the broker has its lease."""

    def __init__(self, runtime: Runtime, lookup: OffsetLookup) -> None:
        self.clock = runtime.clock
        self.timers = runtime.timers
        self._lookup = lookup
        self._verifier = SegmentVerifier(runtime)
        # By the request that they belong to.
        self._waiting: dict[object, deque[RecordDeletion]] = {}
        self._running = 0

    def delete(
        self, wanted: Sequence[tuple[LeaderPartition, int]], timeout_ms: int, done: OnAllDeleted
    ) -> Callable[[], None]:
        """Delete below each offset, where -1 is all that consumers may see, and wait for replicas in sync.

        Calls `done` with the new log starts, never before this returns. The function that is returned gives
        up on what has not begun.
        """
        request = DeletionRequest(self, wanted, timeout_ms, done)
        request.start()
        return request.cancel

    def delete_before(self, partition: LeaderPartition, offset: int, done: OnDeleted) -> None:
        """Delete the records below one offset; calls `done` when the log here starts there."""
        target = self.target_of(partition, offset)
        if isinstance(target, ApiError):
            self.timers.soon(partial(done, target))
        else:
            self.enqueue(partition, RecordDeletion(partition, target, done))

    def target_of(self, partition: LeaderPartition, offset: int) -> Offset | ApiError:
        """Up to where a row deletes."""
        refused = self._lookup.check(partition)
        if refused is not None:
            return refused
        target = partition.high_watermark if offset == ALL_RECORDS else Offset(offset)
        if not 0 <= target <= partition.high_watermark:
            return ApiError(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the high watermark {partition.high_watermark}",
            )
        return target

    def enqueue(self, request: object, deletion: RecordDeletion) -> None:
        """Delete when it is this request's turn."""
        if not self._waiting:
            self.timers.soon(self._begin_some)
        self._waiting.setdefault(request, deque()).append(deletion)

    def forget(self, request: object) -> None:
        """Begin no more deletions of this request."""
        self._waiting.pop(request, None)

    def _begin_some(self) -> None:
        while self._waiting and self._running < DELETIONS_MAX:
            request, queue = next(iter(self._waiting.items()))
            del self._waiting[request]
            deletion = queue.popleft()
            if queue:
                self._waiting[request] = queue
            self._begin(deletion)

    def _begin(self, deletion: RecordDeletion) -> None:
        partition = deletion.partition
        # It may have waited for long.
        refused = self._lookup.check(partition)
        if refused is not None:
            deletion.done(refused)
            return
        self._running += 1
        try:
            partition.log.advance_start(deletion.target, partial(self._ended, deletion))
        except SuspectSegment as error:
            self._running -= 1
            self._verifier.suspect(partition, max(error.segment, partition.log.start))
            deletion.done(ApiError(ErrorKind.DAMAGED_LOG, str(error)))
        except StorageError as error:
            self._running -= 1
            deletion.done(ApiError(ErrorKind.STORAGE_FAILED, str(error)))

    def _ended(self, deletion: RecordDeletion, error: StorageError | None) -> None:
        self._running -= 1
        partition = deletion.partition
        if error is None:
            partition.log_start_moved()
            deletion.done(partition.log.start)
        else:
            deletion.done(partition.stopped or ApiError(ErrorKind.STORAGE_FAILED, str(error)))
        if self._waiting:
            self.timers.soon(self._begin_some)


class DeletionRequest:
    """The rows of one request, and what came of them."""

    def __init__(
        self,
        service: RecordDeletionService,
        wanted: Sequence[tuple[LeaderPartition, int]],
        timeout_ms: int,
        done: OnAllDeleted,
    ) -> None:
        self._service = service
        self._wanted = wanted
        self._timeout_ms = max(timeout_ms, 0)
        self._done: OnAllDeleted | None = done
        self._outcomes: list[Offset | ApiError | None] = [None] * len(wanted)
        self._missing = len(wanted)
        deadline = Instant(service.clock.now() + (self._timeout_ms + LOCAL_MS) * MILLISECOND)
        self._timer = service.timers.at(deadline, self._time_is_up)

    def start(self) -> None:
        by_partition: dict[LeaderPartition, list[int]] = {}
        for row, (partition, _) in enumerate(self._wanted):
            by_partition.setdefault(partition, []).append(row)
        for partition, rows in by_partition.items():
            self._delete(partition, rows)
        if not self._missing:
            self._service.timers.soon(self._finish)

    def _delete(self, partition: LeaderPartition, rows: list[int]) -> None:
        accepted, most = list[int](), Offset(0)
        # A request may name the same again and again.
        judged: dict[int, Offset | ApiError] = {}
        for row in rows:
            offset = self._wanted[row][1]
            target = judged.get(offset)
            if target is None:
                target = judged[offset] = self._service.target_of(partition, offset)
            if isinstance(target, ApiError):
                self._outcomes[row] = target
                self._missing -= 1
            else:
                accepted.append(row)
                if target > most:
                    most = target

        def deleted(start: Offset | ApiError) -> None:
            if isinstance(start, ApiError):
                self._settle(accepted, start)
            else:
                partition.when_deleted(
                    start,
                    lambda error: self._settle(accepted, start if error is None else error),
                    self._timeout_ms,
                )

        if accepted:
            self._service.enqueue(self, RecordDeletion(partition, most, deleted))

    def _settle(self, rows: list[int], outcome: Offset | ApiError) -> None:
        for row in rows:
            self._outcomes[row] = outcome
        self._missing -= len(rows)
        if not self._missing:
            self._finish()

    def _time_is_up(self) -> None:
        self._service.forget(self)
        self._finish()

    def cancel(self) -> None:
        """Nobody waits for the outcome any more: begin nothing else."""
        self._service.forget(self)
        self._done = None
        self._timer.cancel()

    def _finish(self) -> None:
        done, self._done = self._done, None
        self._timer.cancel()
        if done is not None:
            done([TIMED_OUT if outcome is None else outcome for outcome in self._outcomes])
