"""Committed records of a partition's log, as they stand in their batches.

Only what is below the last stable offset and was not aborted; of a coordinator's own log, what is committed,
whatever transactions do. What cannot be served as it is gets verified
in a thread first, as for consumers of the log; batches that take long to look through go to a worker, which
unpacks as much as is good for one step and no more.

A batch whose bytes are as its producer sent them and cannot be decoded has no records that anybody could
deliver. It is passed over with an event that names it: a queue that stopped there would stop for ever.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from penstock.broker.list_offsets import UNSURE
from penstock.broker.partitions import LeaderPartition, SegmentVerifier, VerificationResult
from penstock.broker.worker_share import WorkersBusy, WorkerShare
from penstock.core.model import ApiError, CorruptionError, ErrorKind, Offset, PenstockError
from penstock.core.queues import runs_of
from penstock.core.records import (
    BatchHeader,
    CompressionType,
    CorruptBatch,
    IndexedRecords,
    Record,
    RecordsTooLarge,
    check_batches,
    index_records,
    read_header,
    records_in,
)
from penstock.core.records.compression import LIMIT_BYTES
from penstock.core.replica import AbortedTransaction
from penstock.observability import log as events
from penstock.runtime import Callback, ExecutorFull, Runtime, WorkerDied
from penstock.storage.log import FileRange, OffsetOutOfRange

# One read, unless a batch is larger.
STEP_BYTES = 64 << 10
# About what can be looked through on the loop.
RECORDS_PER_TURN = 4_000
# A step ends with the batch that reaches this many bytes of records.
UNPACKED_BYTES = 1 << 20
# How many offsets for one that is wanted are too many to decode.
SPARSE = 8
# A matter of the node, not of the records.
NO_WORKER = (WorkersBusy, ExecutorFull, WorkerDied)


class UnreadableBatch(NamedTuple):
    """A batch that is as it was written, and that nobody can decode."""

    start: int
    end: int
    reason: str


class CommittedRecords(NamedTuple):
    """Batches of a range of the log; offsets up to `end` that they do not have are none to deliver.

    The first one may begin before `start`.
    """

    batches: tuple[IndexedRecords, ...]
    start: Offset
    end: Offset
    unreadable: tuple[UnreadableBatch, ...] = ()

    @property
    def records(self) -> tuple[Record, ...]:
        """All of them, decoded."""
        return tuple([record for batch in self.batches for record in batch.records(self.start)])


OnRecords: TypeAlias = Callable[[CommittedRecords | ApiError], None]
OnFound: TypeAlias = Callable[[dict[Offset, Record] | ApiError], None]


class RecordReader:
    """Reads for queues, a step at a time. Callbacks may be called at once."""

    def __init__(self, runtime: Runtime, workers: WorkerShare | None = None) -> None:
        self._workers = workers or WorkerShare(runtime)
        self._timers = runtime.timers
        self._verifier = SegmentVerifier(runtime)

    def read(
        self,
        partition: LeaderPartition,
        start: Offset,
        done: OnRecords,
        *,
        is_own: bool = False,
        bytes_max: int = STEP_BYTES,
    ) -> None:
        """What is committed from `start` on, some of it; nothing, up to `start`, if there is no more.

        `is_own`: the log is that of a coordinator here, which knows what its transactions do.
        """
        if partition.stopped is not None:
            done(partition.stopped)
            return
        log = partition.log
        stable = partition.high_watermark if is_own else log.last_stable_offset
        if log.is_unsure and partition.has_other_replicas:
            done(UNSURE)
            return
        try:
            ranges = log.read(start, bytes_max, end=stable).ranges if start < stable else ()
            if not ranges:
                done(CommittedRecords((), start, start))
                return
            piece = ranges[0]
            aborted = () if is_own else tuple(log.aborted_in(start, piece, stable))
            decode = partial(self._decode, partition, start, aborted, done)
            if piece.is_servable():
                decode(piece)
            else:
                again = partial(self.read, partition, start, done, is_own=is_own, bytes_max=bytes_max)
                self._verify(partition, start, piece, decode, again, done)
        except PenstockError as error:
            done(self._error(partition, start, error))

    def find(
        self,
        partition: LeaderPartition,
        offsets: Sequence[Offset],
        done: OnFound,
        *,
        is_own: bool = False,
        on_read: Callable[[tuple[Record, ...]], None] | None = None,
    ) -> None:
        """The records at these offsets, those that the log (still) has.

        `on_read` gets all that was read on the way.
        """
        found: dict[Offset, Record] = {}
        wanted = sorted(offsets)

        def read(part: CommittedRecords) -> None:
            if on_read is not None:
                on_read(part.records)
            for batch in part.batches:
                here = wanted[bisect_left(wanted, batch.base_offset) : bisect_left(wanted, batch.end)]
                for start, end in runs_of(here):
                    piece = batch.slice(start, end)
                    if piece is not None:
                        found.update((Offset(each.offset), each) for each in records_in(piece))

        def ended(error: ApiError | None) -> None:
            done(found if error is None else error)

        self.collect(partition, offsets, read, ended, is_own=is_own)

    def collect(
        self,
        partition: LeaderPartition,
        offsets: Sequence[Offset],
        on_read: Callable[[CommittedRecords], None],
        done: Callable[[ApiError | None], None],
        *,
        is_own: bool = False,
    ) -> None:
        """Read what the log (still) has at these offsets, and what stands beside it, part by part."""
        self._collect(partition, sorted(offsets), on_read, done, is_own)

    def _collect(
        self,
        partition: LeaderPartition,
        left: list[Offset],
        on_read: Callable[[CommittedRecords], None],
        done: Callable[[ApiError | None], None],
        is_own: bool,
    ) -> None:
        log_start = partition.log.start
        left = [offset for offset in left if offset >= log_start]
        if not left:
            done(None)
            return

        def read(part: CommittedRecords | ApiError) -> None:
            if isinstance(part, ApiError):
                if part.kind is ErrorKind.OFFSET_OUT_OF_RANGE and partition.log.start > left[0]:
                    # Deleted meanwhile.
                    self._timers.soon(partial(self._collect, partition, left, on_read, done, is_own))
                else:
                    done(part)
                return
            if part.end <= left[0]:
                done(
                    ApiError(ErrorKind.OFFSET_NOT_AVAILABLE, f"{partition.name}: {left[0]} is not committed")
                )
                return
            on_read(part)
            rest = [offset for offset in left if offset >= part.end]
            if rest:
                # Not in this turn of the loop: the records may be far apart.
                self._timers.soon(partial(self._collect, partition, rest, on_read, done, is_own))
            else:
                done(None)

        # Records that are far apart are read batch by batch.
        is_dense = left[-1] - left[0] < SPARSE * len(left)
        self.read(
            partition, left[0], read, is_own=is_own, bytes_max=STEP_BYTES if is_dense or not is_own else 1
        )

    def _verify(
        self,
        partition: LeaderPartition,
        start: Offset,
        piece: FileRange,
        decode: Callable[[FileRange], None],
        again: Callback,
        done: OnRecords,
    ) -> None:
        verification = partition.log.verification(piece)
        if verification is None:
            # Its segment was deleted or replaced meanwhile.
            self._timers.soon(again)
            return

        def verified(result: VerificationResult | None) -> None:
            if result is not None and result.is_whole:
                decode(piece)
            else:
                done(ApiError(ErrorKind.DAMAGED_LOG, f"{partition.name}: {start} could not be verified"))

        self._verifier.verify(partition, verification, verified)

    def _decode(
        self,
        partition: LeaderPartition,
        start: Offset,
        aborted: tuple[AbortedTransaction, ...],
        done: OnRecords,
        piece: FileRange,
    ) -> None:
        try:
            content = piece.to_bytes()
            headers = check_batches(content, compacted=True)
            is_large = sum(header.record_count for header in headers) > RECORDS_PER_TURN or any(
                header.codec is not CompressionType.NONE for header in headers
            )
            found = None if is_large else committed_records(content, start, aborted)
        except PenstockError as error:
            done(self._error(partition, start, error))
            return
        if found is not None:
            self._deliver(partition, done, found)
        else:
            self._send(partition, start, partial(committed_records, content, start, aborted), done)

    def _send(
        self,
        partition: LeaderPartition,
        start: Offset,
        work: Callable[..., CommittedRecords],
        done: OnRecords,
    ) -> None:
        """Have a worker look through batches."""

        def failed(error: Exception) -> None:
            if isinstance(error, NO_WORKER):
                # Nothing is wrong with the records: consumers ask again.
                done(ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, f"{partition.name}: {error}"))
                return
            events.warning("queue.read_failed", partition=str(partition.name), offset=start, error=error)
            done(ApiError(ErrorKind.STORAGE_FAILED, f"{partition.name}: {error}"))

        # Who asks for them did not write them: a topic's batches wait behind each other.
        client = ("queue", partition.name.topic)
        worked = partial(self._deliver, partition, done)
        self._workers.unpack(client, work, worked, failed, STEP_BYTES)

    def _deliver(self, partition: LeaderPartition, done: OnRecords, found: CommittedRecords) -> None:
        for one in found.unreadable:
            events.warning(
                "queue.batch_unreadable",
                partition=str(partition.name),
                offset=one.start,
                end=one.end,
                reason=one.reason,
            )
        done(found)

    def _error(self, partition: LeaderPartition, start: Offset, error: PenstockError) -> ApiError:
        if isinstance(error, OffsetOutOfRange):
            return ApiError(ErrorKind.OFFSET_OUT_OF_RANGE, str(error))
        self._verifier.suspect(partition, start)
        is_damaged = isinstance(error, CorruptionError)
        return ApiError(ErrorKind.DAMAGED_LOG if is_damaged else ErrorKind.STORAGE_FAILED, str(error))


def committed_records(
    content: bytes,
    start: Offset,
    aborted: tuple[AbortedTransaction, ...],
    limit_bytes: int = LIMIT_BYTES,
) -> CommittedRecords:
    """Look through batches that stand back to back, and were checked: as many as make one step.

    A step ends before a batch that unpacks to more than `limit_bytes`; RecordsTooLarge if it is the first.
    """
    view, at, unpacked = memoryview(content), 0, 0
    batches: list[IndexedRecords] = []
    unreadable: list[UnreadableBatch] = []
    end = start
    while at < len(view) and unpacked < UNPACKED_BYTES:
        header = read_header(view, at)
        batch, at = view[at : at + header.size_bytes], at + header.size_bytes
        if not header.is_control and not _is_aborted(header, aborted):
            try:
                found = index_records(batch, limit_bytes)
            except CorruptBatch as broken:
                if isinstance(broken, RecordsTooLarge) and limit_bytes < LIMIT_BYTES:
                    if end == start:
                        raise
                    break
                unreadable.append(UnreadableBatch(header.base_offset, header.next_offset, str(broken)))
            else:
                batches.append(found)
                unpacked += len(found.payload)
        end = Offset(header.next_offset)
    return CommittedRecords(tuple(batches), start, end, tuple(unreadable))


def _is_aborted(header: BatchHeader, aborted: tuple[AbortedTransaction, ...]) -> bool:
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )
