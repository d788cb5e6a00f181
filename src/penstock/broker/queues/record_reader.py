"""Committed records of a partition's log, decoded.

Only what is below the last stable offset and was not aborted; of a coordinator's own log, what is committed,
whatever transactions do. What cannot be served as it is gets verified
in a thread first, as for consumers of the log; batches that take long to decode go to a worker.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from penstock.broker.list_offsets import UNSURE
from penstock.broker.partitions import LeaderPartition, SegmentVerifier, VerificationResult
from penstock.core.model import ApiError, CorruptionError, ErrorKind, Offset, PenstockError
from penstock.core.records import BatchHeader, CompressionType, Record, check_batches, read_records
from penstock.core.replica import AbortedTransaction
from penstock.observability import log as events
from penstock.runtime import Callback, ExecutorKind, Runtime
from penstock.storage.log import FileRange, OffsetOutOfRange

# One read: about what can be decoded on the loop.
STEP_BYTES = 64 << 10
# How many offsets for one that is wanted are too many to decode.
SPARSE = 8


def _ignore(_: object) -> None:
    """Nobody wants more than was asked for."""


class CommittedRecords(NamedTuple):
    """The records of a range of the log; offsets up to `end` that are not among them are none to deliver."""

    records: tuple[Record, ...]
    end: Offset


OnRecords: TypeAlias = Callable[[CommittedRecords | ApiError], None]
OnFound: TypeAlias = Callable[[dict[Offset, Record] | ApiError], None]


class RecordReader:
    """Reads for queues, a step at a time. Callbacks may be called at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._spawn = runtime.spawn
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
                done(CommittedRecords((), start))
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
        on_read: Callable[[tuple[Record, ...]], None] = _ignore,
    ) -> None:
        """The records at these offsets, those that the log (still) has.

        `on_read` gets all that was decoded on the way.
        """
        self._find(partition, sorted(offsets), {}, done, is_own, on_read)

    def _find(
        self,
        partition: LeaderPartition,
        left: list[Offset],
        found: dict[Offset, Record],
        done: OnFound,
        is_own: bool,
        on_read: Callable[[tuple[Record, ...]], None],
    ) -> None:
        log_start = partition.log.start
        left = [offset for offset in left if offset >= log_start]
        if not left:
            done(found)
            return

        def read(part: CommittedRecords | ApiError) -> None:
            if isinstance(part, ApiError):
                if part.kind is ErrorKind.OFFSET_OUT_OF_RANGE and partition.log.start > left[0]:
                    # Deleted meanwhile.
                    self._timers.soon(partial(self._find, partition, left, found, done, is_own, on_read))
                else:
                    done(part)
                return
            if part.end <= left[0]:
                done(
                    ApiError(ErrorKind.OFFSET_NOT_AVAILABLE, f"{partition.name}: {left[0]} is not committed")
                )
                return
            on_read(part.records)
            wanted = dict.fromkeys(left)
            found.update({Offset(each.offset): each for each in part.records if each.offset in wanted})
            rest = [offset for offset in left if offset >= part.end]
            if rest:
                # Not in this turn of the loop: the records may be far apart.
                self._timers.soon(partial(self._find, partition, rest, found, done, is_own, on_read))
            else:
                done(found)

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
            is_large = len(content) > STEP_BYTES or any(
                header.codec is not CompressionType.NONE for header in headers
            )
            if not is_large:
                done(committed_records(content, start, aborted))
                return
        except PenstockError as error:
            done(self._error(partition, start, error))
            return

        def failed(error: Exception) -> None:
            events.warning("queue.read_failed", partition=str(partition.name), offset=start, error=error)
            done(ApiError(ErrorKind.STORAGE_FAILED, f"{partition.name}: {error}"))

        work = partial(committed_records, content, start, aborted)
        self._spawn.spawn(work, done, failed, ExecutorKind.WORKER)

    def _error(self, partition: LeaderPartition, start: Offset, error: PenstockError) -> ApiError:
        if isinstance(error, OffsetOutOfRange):
            return ApiError(ErrorKind.OFFSET_OUT_OF_RANGE, str(error))
        self._verifier.suspect(partition, start)
        is_damaged = isinstance(error, CorruptionError)
        return ApiError(ErrorKind.DAMAGED_LOG if is_damaged else ErrorKind.STORAGE_FAILED, str(error))


def committed_records(
    content: bytes, start: Offset, aborted: tuple[AbortedTransaction, ...]
) -> CommittedRecords:
    """Decode batches that stand back to back."""
    view, at = memoryview(content), 0
    records: list[Record] = []
    end = start
    for header in check_batches(view, compacted=True):
        batch, at = view[at : at + header.size_bytes], at + header.size_bytes
        end = Offset(header.next_offset)
        if not header.is_control and not _is_aborted(header, aborted):
            records += [record for record in read_records(batch) if record.offset >= start]
    return CommittedRecords(tuple(records), end)


def _is_aborted(header: BatchHeader, aborted: tuple[AbortedTransaction, ...]) -> bool:
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )
