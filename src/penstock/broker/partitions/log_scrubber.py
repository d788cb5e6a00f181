"""Verifies every segment in the background, so that damage is found while other copies are whole.

    one pass: each log, each segment ── 256 KB in a thread ── a pause by the rate ── the next …
                                            └─ at its end: indexes and snapshot
                        └─ before the first: identity, leader epochs, checkpoint
              └─ before all of it: what `on_pass` was given, as the snapshots of the metadata

A pass begins `interval` after the last one began, or when that is done. Where it is stands in the record
`meta/scrub`, so that a node that is started again goes on there. What is damaged becomes known as if a
reader had met it (see `segment_verifier`); files that can be rebuilt are. The raft log is one of the logs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from penstock.broker.partitions.leader_partition import Replica
from penstock.broker.partitions.segment_verifier import SegmentVerifier, VerificationResult, VerifiedLog
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    Instant,
    Offset,
    PenstockError,
    StorageError,
    Timestamp,
    TopicId,
    TopicPartition,
)
from penstock.observability import Metrics
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime, Timer
from penstock.storage.data_directory import META, RecordFileDamaged, read_record, write_record
from penstock.storage.disk import Disk
from penstock.storage.log import FileCheck, PartitionLog

RECORD = "scrub"
# A thread that computes keeps the loop waiting for a moment, again and again: not for long.
STEP_BYTES = 256 << 10
# Small segments cost a job each: not one after the other.
PAUSE_NS = 20 * MILLISECOND
SAVE_NS = 10 * SECOND
DONE = "done"
COUNTED_PER_STEP = 32
NEVER = Timestamp(-1)


class ScrubOptions(NamedTuple):
    """How fast a pass goes, and how often there is one; a rate of 0 switches scrubbing off."""

    bytes_per_second: int
    interval_ms: int


class ScrubMetrics(Metrics):
    """What scrubbing has read and found, and what is damaged now."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_verified = self.counter(
            "penstock_scrub_bytes_total", "Bytes of segments that were verified in the background."
        ).of()
        self.passes = self.counter(
            "penstock_scrub_passes_total", "How often all segments were verified."
        ).of()
        self.damaged_ranges = self.counter(
            "penstock_scrub_damaged_ranges_total", "Damaged ranges that scrubbing has found."
        ).of()
        self.ranges_found = self.counter(
            "penstock_damaged_ranges_total", "Ranges of logs that were found damaged, by whomever."
        ).of()
        self.ranges_repaired = self.counter(
            "penstock_repaired_ranges_total",
            "Damaged ranges that were filled from another replica, or from memory.",
        ).of()
        self.ranges_lost = self.counter(
            "penstock_lost_ranges_total", "Ends of logs that were durable and that a start did not find."
        ).of()
        self.files_rebuilt = self.counter(
            "penstock_scrub_files_rebuilt_total",
            "Indexes, snapshots and other small files that were damaged or missing, and were rebuilt.",
        ).of()
        self.corrupt_ranges = self.gauge(
            "penstock_corrupt_ranges", "Ranges of this node's logs that cannot be read."
        )


class ScrubPosition(NamedTuple):
    """Which segment of which log was verified last: logs go by topic id and partition."""

    log: str = ""
    segment: int = -1


class ScrubProgress(NamedTuple):
    """When the present or last pass began, and which segment of which log it has verified last."""

    started: Timestamp
    log: TopicPartition | None
    segment: int
    is_done: bool


class DamageCounts(NamedTuple):
    """What a log has counted since it was opened."""

    found: int
    repaired: int
    lost: int

    @staticmethod
    def of(log: PartitionLog) -> "DamageCounts":
        stats = log.stats
        return DamageCounts(stats.damaged_ranges, stats.repaired_ranges, stats.lost_ranges)


NO_DAMAGE = DamageCounts(0, 0, 0)


class ScrubbedLog(VerifiedLog, Protocol):
    """A log that a pass goes through."""

    @property
    def topic_id(self) -> TopicId: ...


class LogScrubber:
    """One pass after another over the logs that `replicas` returns."""

    def __init__(self, runtime: Runtime, replicas: Callable[[], list[Replica]], side_disk: Disk) -> None:
        self._runtime = runtime
        self._replicas = replicas
        # Files are read and the record is written by threads, on a view of the disk of their own.
        self._disk = side_disk
        self._verifier = SegmentVerifier(runtime)
        self._options = ScrubOptions(0, 0)
        self._started = Timestamp(0)
        self._position = ScrubPosition()
        # What the pass has still to go through, and the segments of the present log: the next is last.
        self._logs: list[ScrubbedLog] = []
        self._segments: list[Offset] = []
        self._timer: Timer | None = None
        self._is_running = False
        self._is_saving = False
        self._saved_at = Instant(0)
        self._found = 0
        self._verified_before = 0
        self._on_pass: list[Callable[[], None]] = []
        self._others: list[ScrubbedLog] = []
        # When all segments of a log were last found to be there and verified, by name.
        self._verified_at: dict[str, Timestamp] = {}
        # What of each log's counters is in the metrics, by name.
        self._counted: dict[str, tuple[PartitionLog, DamageCounts]] = {}
        # Work of an earlier pass that ends later counts no more.
        self._pass = 0
        # How far the present segment reached when its verification began: the last one grows.
        self._segment_end = 0
        self.metrics = ScrubMetrics()
        self.metrics.corrupt_ranges.read(lambda: sum(len(one.log.corruption) for one in self._all()))

    def add(self, log: ScrubbedLog) -> None:
        """Verify a log that is no partition's."""
        self._others.append(log)

    def on_pass(self, check: Callable[[], None]) -> None:
        """Call `check` at the beginning of every pass."""
        self._on_pass.append(check)

    def request(self, at: Timestamp) -> None:
        """Begin a pass now, unless the last one began after this time."""
        if self._is_running and at > self._started:
            if self._timer is not None:
                self._timer.cancel()
            self._begin_pass()
            # Whoever asked may have another clock: this pass is the one that was meant.
            self._started = max(self._started, at)

    @property
    def progress(self) -> ScrubProgress:
        """Where the present pass is, or that it is done."""
        name, segment = self._position
        log = next((one.name for one in self._all() if _name(one) == name), None)
        return ScrubProgress(self._started if self._is_running else NEVER, log, segment, is_done=name == DONE)

    def verified_at(self, log: ScrubbedLog) -> Timestamp:
        """When the last pass that went through a log ended, since the start of the node; or `NEVER`."""
        return self._verified_at.get(_name(log), NEVER)

    def directories(self) -> list[str]:
        """Where the logs are."""
        return [one.log.directory for one in self._all()]

    def count(self) -> Iterator[None]:
        """Bring the metrics in step with what the logs have counted, bit by bit: there may be thousands."""
        metrics, counted = self.metrics, {}
        for number, one in enumerate(list(self._all())):
            if number % COUNTED_PER_STEP == 0:
                yield
            now = DamageCounts.of(one.log)
            log, before = self._counted.get(_name(one), (one.log, NO_DAMAGE))
            before = before if log is one.log else NO_DAMAGE
            metrics.ranges_found.count += now.found - before.found
            metrics.ranges_repaired.count += now.repaired - before.repaired
            metrics.ranges_lost.count += now.lost - before.lost
            counted[_name(one)] = (one.log, now)
        self._counted = counted

    def start(self, options: ScrubOptions) -> None:
        """Go on with the pass that a stop interrupted, or wait until the next one is due."""
        self._options = options
        self._saved_at = self._runtime.clock.now()
        if options.bytes_per_second > 0:
            self._is_running = True
            self._restore()

    def stop(self) -> None:
        """Stop, and note where. Blocks for a moment if there is something to note."""
        if not self._is_running:
            return
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._logs and not self._is_saving:
            try:
                write_record(self._disk, META, RECORD, self._record())
            except StorageError as error:
                events.warning("scrub.position_not_saved", error=error)

    def _restore(self) -> None:
        try:
            record = read_record(self._disk, META, RECORD)
            started, log, segment = (record or "").split()
            self._started = Timestamp(int(started))
            self._position = ScrubPosition(log, int(segment))
        except (StorageError, RecordFileDamaged, ValueError):
            # It was never written, or is damaged itself: begin at the beginning.
            self._begin_pass()
            return
        if log == DONE:
            self._wait_for_next_pass()
        else:
            self._gather()

    def _begin_pass(self) -> None:
        self._started = self._runtime.clock.wall()
        self._pass += 1
        self._segments = []
        self._position = ScrubPosition()
        self._found = 0
        self._verified_before = self.metrics.bytes_verified.count
        for check in self._on_pass:
            check()
        self._gather()

    def _all(self) -> list[ScrubbedLog]:
        return [*self._others, *self._replicas()]

    def _gather(self) -> None:
        """Find what the pass has still to do."""
        logs = {_name(replica): replica for replica in self._all()}
        self._logs = [logs[name] for name in sorted(logs, reverse=True) if name >= self._position.log]
        self._later(0, self._next)

    def _later(self, bytes_read: int, go_on: Callable[[], None]) -> None:
        """Go on when so many bytes have had their time."""
        if self._is_running:
            pause_ns = max(PAUSE_NS, bytes_read * SECOND // self._options.bytes_per_second)
            self._timer = self._runtime.timers.at(Instant(self._runtime.clock.now() + pause_ns), go_on)

    def _next(self) -> None:
        """Go on with the next segment, or the next log that has one."""
        while self._logs:
            replica = self._logs[-1]
            if not self._segments:
                after = self._position.segment if self._position.log == _name(replica) else -1
                bases = [one.base_offset for one in replica.log.segments() if one.size_bytes]
                self._segments = [base for base in reversed(bases) if base > after]
                if self._segments and after < 0:
                    self._check_files(replica, None)
                    return
            if self._segments:
                self._begin_segment(replica)
                return
            self._logs.pop()
        self._end_pass()

    def _begin_segment(self, replica: ScrubbedLog) -> None:
        base = self._segments[-1]
        sizes = {one.base_offset: one.size_bytes for one in replica.log.segments()}
        self._segment_end = sizes.get(base, 0)
        self._verify(replica, base, 0, base)

    def _verify(self, replica: ScrubbedLog, segment: Offset, position: int, offset: int) -> None:
        try:
            verification = replica.log.verification_at(segment, position, offset, limit_bytes=STEP_BYTES)
        except StorageError as error:
            # The file cannot be opened now: the next pass tries again.
            events.warning("partition.verification_failed", partition=str(replica.name), error=error)
            self._segment_done(replica, segment)
            return
        if verification is None:
            # Its end is reached, or it is gone.
            self._check_files(replica, segment)
            return

        number = self._pass

        def verified(result: VerificationResult | None) -> None:
            if number != self._pass:
                return
            if result is None or result.position <= position:
                self._segment_done(replica, segment)
                return
            count = result.position - position
            self.metrics.bytes_verified.count += count
            self.metrics.damaged_ranges.count += len(result.damage)
            self._found += len(result.damage)
            if result.position >= self._segment_end:
                go_on = partial(self._check_files, replica, segment)
            else:
                go_on = partial(self._verify, replica, segment, result.position, result.offset)
            self._later(count, go_on)

        self._verifier.verify(replica, verification, verified)

    def _check_files(self, replica: ScrubbedLog, segment: Offset | None) -> None:
        """Check the files beside a segment, or those of the log."""
        check = replica.log.file_check(replica.topic_id, segment)
        if check is None:
            self._segment_done(replica, segment)
            return
        number = self._pass

        def go_on() -> None:
            if number == self._pass:
                self._segment_done(replica, segment)

        def checked(names: list[str]) -> None:
            if self._is_running and number == self._pass:
                self._rebuild(replica, segment, check, names, go_on)

        def failed(error: Exception) -> None:
            events.warning("scrub.file_check_failed", partition=str(replica.name), error=error)
            go_on()

        work = partial(check.work, self._disk)
        self._runtime.spawn.spawn(work, checked, failed, ExecutorKind.DISK)

    def _rebuild(
        self,
        replica: ScrubbedLog,
        segment: Offset | None,
        check: FileCheck,
        names: list[str],
        done: Callable[[], None],
    ) -> None:
        """Rebuild files that were found damaged; indexes of large segments in a thread."""
        try:
            rebuilt = check.finish(names)
        except PenstockError as error:
            events.warning("scrub.file_check_failed", partition=str(replica.name), error=error)
            done()
            return
        if rebuilt:
            self.metrics.files_rebuilt.count += len(rebuilt)
            events.warning("scrub.files_rebuilt", partition=str(replica.name), files=rebuilt)
        if rebuilt and segment is not None and check.is_large:
            self._verifier.rebuild_indexes(replica, segment, done, check=False)
        else:
            done()

    def _segment_done(self, replica: ScrubbedLog, segment: Offset | None) -> None:
        if not self._is_running:
            return
        if segment is None:
            # The files of the log: its segments follow.
            self._begin_segment(replica)
            return
        self._segments.pop()
        self._position = ScrubPosition(_name(replica), segment)
        if not self._segments:
            self._logs.pop()
            self._verified_at[_name(replica)] = self._runtime.clock.wall()
        if self._runtime.clock.now() - self._saved_at >= SAVE_NS:
            self._save()
        self._later(0, self._next)

    def _end_pass(self) -> None:
        self.metrics.passes.count += 1
        verified = self.metrics.bytes_verified.count - self._verified_before
        # A new node has nothing to verify, and nobody wants to read that.
        tell = events.info if verified else events.debug
        tell("scrub.completed", bytes=verified, damaged_ranges=self._found)
        self._position = ScrubPosition(DONE, 0)
        present = [_name(one) for one in self._all()]
        self._verified_at = {name: self._verified_at[name] for name in present if name in self._verified_at}
        self._save()
        self._wait_for_next_pass()

    def _wait_for_next_pass(self) -> None:
        left_ms = self._started + self._options.interval_ms - self._runtime.clock.wall()
        # The wall clock may have been wrong: never wait for longer than an interval.
        pause_ms = max(0, min(left_ms, self._options.interval_ms))
        deadline = Instant(self._runtime.clock.now() + pause_ms * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._begin_pass)

    def _save(self) -> None:
        """Note the position, in a thread."""

        def saved(_: None) -> None:
            self._is_saving = False

        def failed(error: Exception) -> None:
            self._is_saving = False
            events.warning("scrub.position_not_saved", error=error)

        self._saved_at = self._runtime.clock.now()
        if not self._is_saving:
            self._is_saving = True
            write = partial(write_record, self._disk, META, RECORD, self._record())
            self._runtime.spawn.spawn(write, saved, failed, ExecutorKind.DISK)

    def _record(self) -> str:
        return f"{self._started} {self._position.log or '-'} {self._position.segment}"


def _name(replica: ScrubbedLog) -> str:
    """Logs are gone through in the order of this, which does not depend on what else there is."""
    return f"{replica.topic_id}-{replica.name.partition}"
