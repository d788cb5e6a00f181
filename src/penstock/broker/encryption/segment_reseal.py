"""Full segments are written again under data keys that no table on disk has had before.

    one pass: each log, each full segment ── 1 MB in a thread ── a pause by the rate ── the next …
                  └─ before the first: the log goes on in another segment, under another key

A pass follows a rotation if it was asked for: whoever has an old master key and an old copy of the disk has
the data keys in it, and what is still under those. It also encrypts what a log has in clear from before its
batches were sealed. Where the pass is stands in the record `meta/reseal`, so that a node that is started
again goes on there; some segments are written a second time then. The record is written in the order in which
that was asked for: what a later pass has said does not go back to what an earlier one did.

A segment is replaced as a repair replaces it (see `storage.log.refill`): the key table says first, durably,
that the offsets may be under the new key as well, and the old file counts until the checkpoint names the new.
What compaction, retention or a truncation replaces meanwhile is not put in place.

Left out: segments that are damaged stay as they are, and are named at the end. A repair writes them under the
key that they had.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from penstock.broker.partitions.log_scrubber import ScrubbedLog
from penstock.broker.partitions.segment_verifier import SegmentVerifier
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    CorruptionError,
    Instant,
    Offset,
    PenstockError,
    StorageError,
    Timestamp,
)
from penstock.observability import log as events
from penstock.runtime import Executor, ExecutorKind, Runtime, Timer
from penstock.storage.data_directory import META, RecordFileDamaged, read_record, write_record
from penstock.storage.disk import Disk
from penstock.storage.log import GoodBytes, PartitionLog, SegmentDraft, SegmentSummary

RECORD = "reseal"
DONE = "done"
NOTHING = "-"
# A thread that computes keeps the loop waiting for a moment, again and again: not for long.
STEP_BYTES = 1 << 20
PAUSE_NS = 5 * MILLISECOND
SAVE_NS = 10 * SECOND
RETRY_NS = 5 * SECOND
ATTEMPTS_MAX = 5
TOKEN_BYTES = 8


class ResealPosition(NamedTuple):
    """Since when a pass goes on, and which segment of which log it has done last; logs go by id."""

    started: Timestamp
    log: str = ""
    segment: int = -1

    @property
    def is_done(self) -> bool:
        return self.log == DONE

    def encode(self) -> str:
        return f"{self.started} {self.log or NOTHING} {self.segment}"


def read_position(disk: Disk) -> ResealPosition | None:
    """Where the last pass was, if there ever was one; one that cannot be read begins again. Blocks."""
    try:
        record = read_record(disk, META, RECORD)
        if record is None:
            return None
        started, log, segment = record.split()
        return ResealPosition(Timestamp(int(started)), "" if log == NOTHING else log, int(segment))
    except (RecordFileDamaged, ValueError):
        return ResealPosition(Timestamp(0))


def write_position(disk: Disk, position: ResealPosition) -> None:
    """Note where the pass is; durable when it returns. Blocks."""
    write_record(disk, META, RECORD, position.encode())


OnWritten: TypeAlias = Callable[[Exception | None], None]


class PositionFile:
    """The record on disk: one write at a time, in the order in which they are asked for."""

    def __init__(self, spawn: Executor, disk: Disk) -> None:
        self._spawn = spawn
        self._disk = disk
        self._waiting: deque[tuple[ResealPosition, OnWritten]] = deque()
        self.is_busy = False

    def write(self, position: ResealPosition, done: OnWritten) -> None:
        """Note where the pass is; `done` is called later: that is durable, or an error says why not."""
        self._waiting.append((position, done))
        if not self.is_busy:
            self._write_next()

    def _write_next(self) -> None:
        self.is_busy = bool(self._waiting)
        if not self._waiting:
            return
        position, done = self._waiting.popleft()

        def ended(error: Exception | None) -> None:
            self._write_next()
            done(error)

        work = partial(write_position, self._disk, position)
        self._spawn.spawn(work, ended, ended, ExecutorKind.DISK)


class ResealProgress(NamedTuple):
    """How much of a pass is done; `left_out` names logs with segments that could not be written again."""

    bytes_done: int = 0
    logs_total: int = 0
    logs_left: int = 0
    left_out: tuple[str, ...] = ()


class SegmentReseal:
    """One pass at a time over the full segments of the logs that `logs` returns."""

    def __init__(
        self,
        runtime: Runtime,
        side_disk: Disk,
        logs: Callable[[], list[ScrubbedLog]],
        bytes_per_second: int,
        on_bytes: Callable[[int], None],
        on_done: Callable[[], None],
    ) -> None:
        """`on_bytes` is called with what was written, and `on_done` at the end of a pass."""
        self._runtime = runtime
        self._disk = side_disk
        self._all = logs
        self._rate = bytes_per_second
        self._on_bytes = on_bytes
        self._on_done = on_done
        self._position = ResealPosition(Timestamp(0))
        self._file = PositionFile(runtime.spawn, side_disk)
        self._logs: list[ScrubbedLog] = []
        self._segments: list[Offset] = []
        self._logs_total = 0
        self._attempts = 0
        self._verifier = SegmentVerifier(runtime)
        self._timer: Timer | None = None
        # What the timer is for, while no thread has it.
        self._paused: SegmentDraft | None = None
        # Work of an earlier pass that ends later counts no more.
        self._pass = 0
        self._bytes_done = 0
        self._left_out: dict[str, None] = {}
        self._saved_at = Instant(0)
        self.is_running = False

    @property
    def progress(self) -> ResealProgress:
        return ResealProgress(self._bytes_done, self._logs_total, len(self._logs), tuple(self._left_out))

    def start(self, position: ResealPosition) -> None:
        """Begin a pass, or go on with one. Its position is on disk."""
        self.stop()
        self.is_running = True
        self._position = position
        self._attempts = 0
        self._bytes_done = 0
        self._left_out = {}
        self._saved_at = self._runtime.clock.now()
        logs = {_name(one): one for one in self._all()}
        self._logs = [logs[name] for name in sorted(logs, reverse=True) if name >= position.log]
        self._logs_total = len(self._logs)
        events.info("encryption.reseal_started", logs=self._logs_total)
        self._begin_log()

    def note(self, position: ResealPosition, done: OnWritten) -> None:
        """Bring to disk where the next pass begins. No pass runs: what it saved would come behind that."""
        assert not self.is_running
        self._file.write(position, done)

    def stop(self) -> ResealPosition | None:
        """Stop; returns from where a start goes on, None if no pass was running."""
        former = self._position if self.is_running else None
        self.is_running = False
        self._pass += 1
        self._logs, self._segments = [], []
        if self._timer is not None:
            self._timer.cancel()
        if self._paused is not None:
            draft, self._paused = self._paused, None
            self._cancel(draft)
        return former

    def _begin_log(self) -> None:
        """Have the next log that is sealed go on under another key, and find its full segments."""
        while self._logs and not _is_sealed(self._logs[-1].log):
            self._logs.pop()
        if not self._logs:
            self._end()
            return
        log, number = self._logs[-1].log, self._pass

        def renewed(error: StorageError | None) -> None:
            if number != self._pass:
                return
            if error is not None:
                self._again_or_skip(error, self._begin_log)
                return
            self._gather()

        log.renew_keys(renewed)

    def _gather(self) -> None:
        one = self._logs[-1]
        after = self._position.segment if self._position.log == _name(one) else -1
        self._segments = [summary.base_offset for summary in _segments_of(one.log, after)]
        self._segments.reverse()
        if one.log.has_damage:
            self._left_out[str(one.name)] = None
        self._later(0, self._next)

    def _later(self, bytes_written: int, go_on: Callable[[], None], pause_ns: int = PAUSE_NS) -> None:
        """Go on when so many bytes have had their time."""
        pause_ns = max(pause_ns, bytes_written * SECOND // self._rate)
        self._timer = self._runtime.timers.at(Instant(self._runtime.clock.now() + pause_ns), go_on)

    def _next(self) -> None:
        """Go on with the next segment, or the next log."""
        if not self._segments:
            self._logs.pop()
            self._attempts = 0
            self._begin_log()
            return
        one, base = self._logs[-1], self._segments[-1]
        token = self._runtime.entropy.bytes(TOKEN_BYTES).hex()
        try:
            draft = one.log.begin_reseal(token, base)
        except PenstockError as error:
            self._again_or_skip(error, self._next)
            return
        if draft is None:
            # It was deleted or merged into another one, or is damaged.
            self._segment_done()
        else:
            self._go_on(draft)

    def _go_on(self, draft: SegmentDraft) -> None:
        match draft.next:
            case GoodBytes():
                self._work(draft, partial(draft.copy, self._disk, STEP_BYTES), self._go_on)
            case None:
                self._work(draft, partial(draft.seal, self._disk), self._put_in_place)
            case missing:
                raise AssertionError(missing)

    def _work(
        self, draft: SegmentDraft, work: Callable[[], None], then: Callable[[SegmentDraft], None]
    ) -> None:
        number, before = self._pass, draft.size_bytes

        def worked(_: None) -> None:
            if number != self._pass:
                self._cancel(draft)
                return
            count = draft.size_bytes - before
            self._bytes_done += count
            self._on_bytes(count)
            self._paused = draft
            self._later(count, go_on)

        def go_on() -> None:
            self._paused = None
            then(draft)

        def failed(error: Exception) -> None:
            self._cancel(draft)
            if number == self._pass and isinstance(error, CorruptionError):
                self._damaged(error)
            elif number == self._pass:
                self._again_or_skip(error, self._next)

        self._runtime.spawn.spawn(work, worked, failed, ExecutorKind.DISK)

    def _put_in_place(self, draft: SegmentDraft) -> None:
        try:
            is_done = self._logs[-1].log.finish_refill(draft)
        except PenstockError as error:
            self._cancel(draft)
            self._again_or_skip(error, self._next)
            return
        if is_done:
            self._segment_done()
        else:
            # The log has changed: what is there now may have to be written again, too.
            self._cancel(draft)
            self._again_or_skip(StorageError("its log was changed meanwhile"), self._next)

    def _cancel(self, draft: SegmentDraft) -> None:
        draft.abandon()
        self._runtime.spawn.spawn(partial(draft.cancel, self._disk), _ignore, _ignore, ExecutorKind.DISK)

    def _again_or_skip(self, error: Exception, again: Callable[[], None]) -> None:
        """Try again in a while; after some attempts, go on with the next log."""
        one = self._logs[-1]
        self._attempts += 1
        if one.log.stopped is None and self._attempts < ATTEMPTS_MAX:
            self._later(0, again, RETRY_NS)
            return
        if one.log.is_open:
            # Otherwise it was deleted.
            self._left_out[str(one.name)] = None
            events.warning("encryption.log_not_resealed", partition=str(one.name), error=error)
        self._segments = []
        self._later(0, self._next)

    def _damaged(self, error: Exception) -> None:
        """A segment turned out to be damaged: have it repaired, and go on with the next one."""
        one, base = self._logs[-1], self._segments[-1]
        events.warning("encryption.segment_not_resealed", partition=str(one.name), segment=base, error=error)
        self._left_out[str(one.name)] = None
        self._verifier.suspect(one, max(base, one.log.start))
        self._segment_done()

    def _segment_done(self) -> None:
        base = self._segments.pop()
        self._attempts = 0
        self._position = self._position._replace(log=_name(self._logs[-1]), segment=int(base))
        if self._runtime.clock.now() - self._saved_at >= SAVE_NS and not self._file.is_busy:
            self._saved_at = self._runtime.clock.now()
            self._file.write(self._position, _saved)
        self._later(0, self._next)

    def _end(self) -> None:
        number = self._pass

        def ended(error: Exception | None) -> None:
            _saved(error)
            if number != self._pass:
                return
            self.is_running = False
            left_out = list(self._left_out)
            tell = events.warning if left_out else events.info
            tell("encryption.reseal_completed", bytes=self._bytes_done, left_out=left_out)
            self._on_done()

        self._file.write(self._position._replace(log=DONE, segment=-1), ended)


def _saved(error: Exception | None) -> None:
    if error is not None:
        # A start does a little more again.
        events.warning("encryption.reseal_position_not_saved", error=error)


def _is_sealed(log: PartitionLog) -> bool:
    return log.stopped is None and log.is_open and log.keys is not None and log.keys.is_on


def _segments_of(log: PartitionLog, after: int) -> list[SegmentSummary]:
    """The full segments behind a base offset."""
    if not _is_sealed(log):
        return []
    return [one for one in log.segments()[:-1] if one.size_bytes and one.base_offset > after]


def _name(one: ScrubbedLog) -> str:
    """Logs are gone through in the order of this, which does not depend on what else there is."""
    return f"{one.topic_id}-{one.name.partition}"


def _ignore(_: object) -> None:
    """Do nothing: drafts that could not be removed are removed at the next start."""
