"""Rebuilds coordinators from their logs, a bounded step per turn of the loop.

All partitions of a node that starts come at once. They are read one after another, so that a
turn of the loop is held up by one step however many of them wait; what is not in the page
cache, or was not verified since the node started, is read and verified by a disk thread first: an
offset stands outside of its batch's CRC, and a wrong one would end the replay too early.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.partitions import (
    LeaderPartition,
    PartitionStopped,
    SegmentVerifier,
    VerificationResult,
)
from penstock.core.model import CorruptionError, Offset, PenstockError
from penstock.core.records import (
    BatchHeader,
    ControlRecord,
    Record,
    check_batches,
    read_control,
    read_records,
)
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.storage.log import DamagedRange, FileRange

# About 125 positions of a group: two milliseconds of decoding.
STEP_BYTES = 16 << 10


class ReplayRequest(NamedTuple):
    """One log to read; `done` is called at its end, with the error if it failed.

    `take` gets every record and the header of its batch; it returns False for one that it skips.
    `take_marker` gets the markers that end transactions.
    """

    partition: LeaderPartition
    take: Callable[[Record, BatchHeader], bool]
    take_marker: Callable[[ControlRecord], None]
    done: Callable[[PenstockError | None], None]
    step_bytes: int = STEP_BYTES


class LogReplay:
    """Reads one log at a time, in the order of the requests, but first those that a client waits for."""

    def __init__(self, runtime: Runtime) -> None:
        self._timers = runtime.timers
        self._verifier = SegmentVerifier(runtime)
        self._waiting: deque[ReplayRequest] = deque()
        self._position = Offset(0)
        self._skipped = 0
        self._running = False

    def start(self, request: ReplayRequest) -> None:
        """Queue a log; nothing is read before the present callback is over."""
        self._waiting.append(request)
        if not self._running:
            self._running = True
            self._begin()

    def prioritize(self, partition: LeaderPartition) -> None:
        """Read this log next: a client waits for it."""
        for at, request in enumerate(self._waiting):
            if request.partition is partition and at > 1:
                del self._waiting[at]
                self._waiting.insert(1, request)
                return

    def _begin(self) -> None:
        if not self._waiting:
            self._running = False
            return
        self._position, self._skipped = self._waiting[0].partition.log.start, 0
        self._timers.soon(self._step)

    def _step(self) -> None:
        partition = self._waiting[0].partition
        if partition.stopped is not None:
            self._end(PartitionStopped(str(partition.stopped)))
        elif self._position >= partition.log.end:
            self._end(None)
        else:
            try:
                self._read(partition)
            except PenstockError as error:
                if not isinstance(error, DamagedRange):
                    self._verifier.suspect(partition, self._position)
                self._end(error)

    def _read(self, partition: LeaderPartition) -> None:
        # The log start may move meanwhile: what was deleted was superseded.
        self._position = max(self._position, partition.log.start)
        found = partition.log.read(self._position, self._waiting[0].step_bytes).ranges
        if not found:
            self._end(CorruptionError(f"{partition.name}: nothing can be read at {self._position}"))
        elif found[0].is_servable():
            self._take(found[0])
        else:
            self._verify(partition, found[0])

    def _verify(self, partition: LeaderPartition, piece: FileRange) -> None:
        verification = partition.log.verification(piece)
        assert verification is not None, "nothing has changed since the read"

        def verified(result: VerificationResult | None) -> None:
            if result is None:
                self._end(CorruptionError(f"{partition.name}: {self._position} could not be verified"))
            elif not result.is_whole or partition.stopped is not None:
                # Reads what is left before the damage, or finds it there.
                self._step()
            else:
                # Reading again may wait for the device, should the pages be gone already.
                self._take(piece)

        self._verifier.verify(partition, verification, verified)

    def _take(self, found: FileRange) -> None:
        try:
            self._take_batches(memoryview(found.to_bytes()))
        except PenstockError as error:
            self._end(error)
        else:
            self._timers.soon(self._step)

    def _take_batches(self, content: memoryview) -> None:
        request, at = self._waiting[0], 0
        take = request.take
        for header in check_batches(content, compacted=True):
            batch, at = content[at : at + header.size_bytes], at + header.size_bytes
            if not header.is_control:
                for record in read_records(batch):
                    if record.offset >= self._position and not take(record, header):
                        self._skipped += 1
            elif header.base_offset >= self._position and header.record_count:
                request.take_marker(read_control(batch))
            self._position = Offset(header.next_offset)

    def _end(self, error: PenstockError | None) -> None:
        request = self._waiting.popleft()
        if self._skipped:
            name = str(request.partition.name)
            events.warning("coordinator.records_skipped", partition=name, records=self._skipped)
        request.done(error)
        self._begin()
