"""The log of one partition: the public API of this package.

Whatever removes records (retention, truncation, compaction) follows one rule: the checkpoint
says first, durably, what will be gone; then the files go. A power cut in between leaves files
that the next start recognises and removes, or a tail that is simply read again. The other way
round, a start would find a hole and have to call it corruption.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress

from penstock.core.model import Instant, LeaderEpoch, Offset, PenstockError, StorageError, Timestamp, TopicId
from penstock.core.records import BatchHeader
from penstock.core.replica import AbortedTransaction, EpochStart, LeaderEpochHistory, ProducerStateManager
from penstock.storage.disk import Disk, DiskFull
from penstock.storage.journal import NO_POSITION, JournalPosition, LogJournal
from penstock.storage.log import append, read, retention, truncate
from penstock.storage.log import compaction as compacting
from penstock.storage.log.checkpoint import (
    BackgroundCheckpoint,
    CheckpointTimer,
    checkpoint_now,
    covered,
    is_current,
)
from penstock.storage.log.compaction import CleaningResult, Compaction, CompactionResult, CompactionRules
from penstock.storage.log.durability import Committer, Done
from penstock.storage.log.files import NO_TIME
from penstock.storage.log.index_rebuild import IndexRebuild, index_rebuild
from penstock.storage.log.keys import LogKeys, new_keys
from penstock.storage.log.loss import CHECKPOINT_LOST
from penstock.storage.log.producer_rebuild import ProducerRebuild
from penstock.storage.log.recovery import RecoveryReport, create_log, open_created_log, open_log
from penstock.storage.log.refill import SegmentDraft, begin_refill, begin_reseal
from penstock.storage.log.scrub import (
    FileCheck,
    ScrubStep,
    Verification,
    file_check,
    quarantine,
    scrub,
    verification_at,
    verification_of,
)
from penstock.storage.log.segment import first_at
from penstock.storage.log.state import LogServices, LogState
from penstock.storage.log.truncate import TailCopy
from penstock.storage.log.types import (
    APPEND_BOUNDS_NS,
    AppendedRange,
    BatchToSearch,
    CorruptRange,
    FileRange,
    LogAbandoned,
    LogOptions,
    LogStats,
    LogStopped,
    ReadResult,
    SegmentSummary,
    TimestampOffset,
)
from penstock.storage.sealing import PLAIN_ID, KeyRow, LogVault

DEFAULTS = LogOptions()
# More than a client is sent at once.
DISTRUSTED_BYTES = 64 << 20


class PartitionLog:
    """Batches in offset order, durable up to `synced`, with the state that a replica needs.

    All calls come from one thread. Those that say so block on the disk; the others write to
    the page cache or return what is in memory.
    """

    __slots__ = ("_start_advance", "_state", "_timer")

    def __init__(self, state: LogState) -> None:
        self._state = state
        state.is_open = True
        self._timer = CheckpointTimer()
        self._start_advance: retention.StartAdvance | None = None
        self._park()
        if state.journal is not None:
            state.journal.sync_file = self._sync_file
            state.journal.epochs = lambda: state.epochs.latest

    @classmethod
    def create(  # noqa: PLR0913 - all but the first four are optional and named
        cls,
        disk: Disk,
        directory: str,
        topic_id: TopicId,
        options: LogOptions = DEFAULTS,
        *,
        commit: Committer | None = None,
        ticks: Callable[[], int] | None = None,
        journal: LogJournal | None = None,
        position: JournalPosition = NO_POSITION,
        is_synced_later: bool = False,
        vault: LogVault | None = None,
    ) -> "PartitionLog":
        """Make an empty log in a directory that has none. Blocks until it is durable.

        `ticks` is a nanosecond clock for the append times in `stats`; without it they are not measured.
        What the node's journal says up to `position` is about a former log of the same name. With
        `is_synced_later`, the caller syncs the directories above it. A log with a `vault` seals its batches
        if its options say so.
        """
        if journal is not None:
            position = journal.position
        services = LogServices(commit, ticks, journal, vault=vault)
        return cls(
            create_log(
                disk, directory, topic_id, options, services, position, is_synced_later=is_synced_later
            )
        )

    @classmethod
    def open_created(  # noqa: PLR0913 - as in `create`
        cls,
        disk: Disk,
        directory: str,
        options: LogOptions,
        position: JournalPosition,
        *,
        commit: Committer | None = None,
        ticks: Callable[[], int] | None = None,
        journal: LogJournal | None = None,
        now: Timestamp = NO_TIME,
        vault: LogVault | None = None,
    ) -> tuple["PartitionLog", RecoveryReport]:
        """Open a log that was created for this process with this position, and that nobody has used."""
        services = LogServices(commit, ticks, journal, now, vault)
        state, report = open_created_log(disk, directory, options, services, position)
        return cls(state), report

    @classmethod
    def open(  # noqa: PLR0913 - as in `create`
        cls,
        disk: Disk,
        directory: str,
        topic_id: TopicId,
        options: LogOptions = DEFAULTS,
        *,
        commit: Committer | None = None,
        ticks: Callable[[], int] | None = None,
        journal: LogJournal | None = None,
        now: Timestamp = NO_TIME,
        is_synced_later: bool = False,
        vault: LogVault | None = None,
    ) -> tuple["PartitionLog", RecoveryReport]:
        """Open a log that was closed, or left behind by a crash, and say what was found. Blocks.

        All of it is durable then, unless `is_synced_later`: the caller calls `sync` for many logs at once.
        Raises KeyUnavailable if a master key is missing, and BrokenEnvelope if its key table is broken.
        """
        services = LogServices(commit, ticks, journal, now, vault)
        state, report = open_log(
            disk, directory, topic_id, options, services, is_synced_later=is_synced_later
        )
        return cls(state), report

    @property
    def directory(self) -> str:
        return self._state.directory

    @property
    def start(self) -> Offset:
        """The first offset that may be read."""
        return self._state.start

    def positions(self) -> tuple[Offset, Offset, Offset]:
        """Where the log starts, what is stable, and where it ends: what every fetch asks, in one call."""
        state = self._state
        transactions, stable = state.producers.transactions, state.high_watermark
        if not transactions.is_quiet:
            # Records of an open transaction may have been deleted from the front.
            stable = max(transactions.last_stable_offset(stable), state.start)
        return state.start, stable, state.end

    @property
    def active_start(self) -> Offset:
        """The base offset of the active segment; everything before it is in sealed segments."""
        return self._state.segments.active.base_offset

    @property
    def end(self) -> Offset:
        """The offset that the next record gets."""
        return self._state.end

    @property
    def synced(self) -> Offset:
        """Everything below this offset survives a power cut."""
        return self._state.durability.synced

    @property
    def high_watermark(self) -> Offset:
        """Kept for the replica, which alone decides on it."""
        return self._state.high_watermark

    def set_high_watermark(self, offset: Offset) -> None:
        state = self._state
        state.high_watermark = offset
        transactions = state.producers.transactions
        if not transactions.is_quiet:
            transactions.settle(offset)

    @property
    def last_stable_offset(self) -> Offset:
        state = self._state
        transactions = state.producers.transactions
        if transactions.is_quiet:
            return state.high_watermark
        return max(transactions.last_stable_offset(state.high_watermark), state.start)

    @property
    def producers(self) -> ProducerStateManager:
        """For `check` before an append; the log itself calls `update`."""
        return self._state.producers

    @property
    def epochs(self) -> LeaderEpochHistory:
        return self._state.epochs

    @property
    def stats(self) -> LogStats:
        return self._state.stats

    @property
    def size_bytes(self) -> int:
        return self._state.segments.size_bytes()

    @property
    def stopped(self) -> BaseException | None:
        """Why the log takes no more writes, if so."""
        return self._state.stopped

    @property
    def is_open(self) -> bool:
        """Whether it was neither closed nor abandoned."""
        return bool(len(self._state.segments))

    @property
    def corruption(self) -> tuple[CorruptRange, ...]:
        """The ranges that cannot be read."""
        return tuple(self._state.damage.values())

    @property
    def has_damage(self) -> bool:
        """Whether there are such ranges."""
        return bool(self._state.damage)

    @property
    def max_timestamp(self) -> Timestamp:
        """The largest timestamp of any batch, or -1."""
        return Timestamp(max(segment.index.max_timestamp for segment in self._state.segments))

    def segments(self) -> list[SegmentSummary]:
        state = self._state
        return [
            SegmentSummary(
                segment.base_offset,
                state.segments.end_of(index, state.end),
                segment.size_bytes,
            )
            for index, segment in enumerate(state.segments)
        ]

    def append(
        self,
        batches: bytearray | memoryview,
        headers: Sequence[BatchHeader],
        leader_epoch: LeaderEpoch,
        now: Timestamp,
    ) -> AppendedRange:
        """Append a leader's checked batches; offsets and epoch are written into them in place."""
        state = self._state
        if state.damage or state.durability.stopped is not None:
            state.check_writable()
        ticks = state.ticks
        if ticks is None:
            return append.append_as_leader(state, batches, headers, leader_epoch, now)
        began = ticks()
        appended = append.append_as_leader(state, batches, headers, leader_epoch, now)
        stats, elapsed_ns = state.stats, ticks() - began
        stats.append_ns += elapsed_ns
        stats.append_buckets[bisect_left(APPEND_BOUNDS_NS, elapsed_ns)] += 1
        return appended

    def append_replica(
        self, batches: bytes | bytearray | memoryview, headers: Sequence[BatchHeader], now: Timestamp
    ) -> AppendedRange:
        """Append what the leader sent, offsets and epochs as they are."""
        state = self._state
        state.check_writable()
        return append.append_as_follower(state, batches, headers, now)

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader epoch starts at the log end, whether or not it ever writes."""
        state = self._state
        if state.epochs.assign(epoch, state.end):
            state.epochs_changed = True

    def end_offset_for(self, epoch: LeaderEpoch) -> EpochStart | None:
        """Where an epoch ended, as KIP-101 and KIP-279 ask; None if it is not known here."""
        return self._state.epochs.end_offset_for(epoch, self._state.end)

    def read(self, start: Offset, max_bytes: int, *, end: Offset | None = None) -> ReadResult:
        """Whole batches from the one that contains `start`, all of them below `end`.

        At least one batch if there is one, however small `max_bytes`. Raises OffsetOutOfRange,
        and DamagedRange where the log is corrupt.
        """
        return read.read(self._state, start, max_bytes, end)

    def read_filled(self, start: Offset, max_bytes: int, *, end: Offset | None = None) -> ReadResult:
        """Like `read`, but for consumers, who have no use for the empty batches that compaction leaves."""
        return read.read_filled(self._state, start, max_bytes, end)

    def offset_for_timestamp(self, timestamp: Timestamp) -> TimestampOffset | None:
        """The first record at or after `timestamp`. Reads headers, and one batch, however long that takes."""
        start = self._state.start
        while isinstance(found := self.search_time(timestamp, start), BatchToSearch):
            inside = first_at(found.content, timestamp, start)
            if inside is not None:
                return inside
            start = found.end
        return found

    def search_time(self, timestamp: Timestamp, start: Offset) -> TimestampOffset | BatchToSearch | None:
        """The same from `start` on; a batch that takes long to look through is left to the caller."""
        return read.search_time(self._state, timestamp, start)

    def aborted_between(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """What a read_committed consumer of this range must skip."""
        return read.aborted_between(self._state, start, end)

    def aborted_in(self, start: Offset, piece: FileRange, end: Offset) -> list[AbortedTransaction]:
        """The same for a range that `read` returned, from `start` on, below `end`."""
        return read.aborted_in(self._state, start, piece, end)

    def sync(self, done: Done) -> None:
        """Make everything appended so far durable, then call `done`, with the error if it failed."""
        state = self._state
        stopped = state.stopped
        if stopped is not None:
            done(LogStopped(state.directory, stopped))
            return
        segment = state.segments.active
        assert segment.writer is not None
        state.durability.commit(segment.writer, state, segment, done)

    def sync_shared(self, done: Done) -> None:
        """Like `sync`, for frequent appends: of the calls until the next round begins, only the first counts.

        Its `done` is called when the round has ended; what was appended until it began is durable then.
        """
        state = self._state
        segment = state.segments.active
        writer = segment.writer
        assert writer is not None
        durability = state.durability
        if durability.sharing is not writer:
            durability.sharing = writer
            durability.commit(writer, state, segment, done)

    def use_journal(self, *, is_on: bool) -> None:
        """Whether appends go to the node's journal, which is worth it if somebody waits for syncs."""
        journal = self._state.journal
        if journal is not None:
            journal.switch(is_on=is_on)

    def _sync_file(self, done: Done) -> bool:
        """Sync the log's own file, so that the journal need not hold what is in it, if that would do."""
        state = self._state
        # One that was closed has no segments.
        if not len(state.segments) or state.stopped is not None or state.end < state.lost_end:
            return False
        writer = state.segments.active.writer
        assert writer is not None
        state.durability.request(writer, state.end, done)
        return True

    @property
    def is_start_in_doubt(self) -> bool:
        """Whether the log may have begun with records that are gone, and nobody would know."""
        return self._state.doubt == CHECKPOINT_LOST and self._state.start > 0

    def accept_loss(self) -> None:
        """Go on without what was durable and is gone, because that is recorded elsewhere by now.

        Until then every start reports it again, and one that follows soon may do so still.
        """
        state = self._state
        had_end = state.lost_end
        state.accept_loss()
        if had_end:
            if state.journal is not None:
                state.journal.lost_end = Offset(0)
            if state.stopped is None:
                self.checkpoint()

    def set_file_remover(self, discard: Callable[[list[str], int], None]) -> None:
        """Have `discard` remove deleted files, no earlier than after so many milliseconds.

        The files have been renamed by then; nothing else uses the names it gets.
        """
        self._state.discard = discard

    def delete_records(self, before: Offset) -> Offset:
        """Raise the log start to `before`; returns where it is now. Blocks."""
        return retention.delete_records(self._state, before)

    def advance_start(self, before: Offset, done: Done) -> None:
        """Raise the log start to `before` without blocking; `done` is called when it is there, durably."""
        if self._start_advance is None:
            self._start_advance = retention.StartAdvance(self._state, self.checkpoint)
        self._start_advance.raise_to(before, done)

    def expire(self, now: Timestamp, segments_max: int | None = None) -> list[SegmentSummary]:
        """Delete what retention does not keep, never above the high watermark. Blocks if it deletes.

        With `segments_max` at most so many segments at once; the next call goes on.
        """
        return retention.expire(self._state, now, segments_max)

    def dirty_ratio(self, rules: CompactionRules, now: Timestamp) -> float:
        """The share of the compactable bytes that is dirty; 0 if compaction is not due.

        Just above 0 if nothing is dirty, but tombstones have expired.
        """
        return compacting.cleanable(self._state, rules, now).urgency(rules)

    def is_due_after_checkpoint(self, rules: CompactionRules, now: Timestamp) -> bool:
        """Whether compaction is due as soon as a checkpoint covers all sealed segments."""
        return compacting.cleanable(self._state, rules, now, after_checkpoint=True).is_due(rules)

    def begin_compaction(self, rules: CompactionRules, now: Timestamp, token: str) -> Compaction | None:
        """The task for a worker, if compaction is due; `token` must be unique to this compaction.

        One at a time. The worker's result goes to `finish_compaction`, or the compaction is cancelled.
        """
        order = compacting.plan(self._state, rules, now, token)
        return None if order is None else Compaction(self._state, order)

    def prepare_compaction(self, compaction: Compaction, cleaned: CleaningResult, done: Done) -> None:
        """Bring to disk what `finish_compaction` relies on, without blocking; it had better follow at once.

        After an error the compaction has to be cancelled.
        """
        compaction.prepare(cleaned, done)

    def finish_compaction(self, compaction: Compaction, cleaned: CleaningResult) -> CompactionResult | None:
        """Put the rewritten segments in place. Blocks for a sync, or a few if nothing was prepared.

        None if they do not fit the log any more. The next compaction can begin after the checkpoint
        that this starts.
        """
        compacted = compaction.finish(cleaned)
        if compacted is not None:
            self._state.stats.compactions += 1
            self.checkpoint()
        return compacted

    def tail_copy(self, offset: Offset, bytes_max: int) -> TailCopy:
        """A copy, by a thread, of what `truncate_to` would cut off to the quarantine, within a bound."""
        return TailCopy(self._state, offset, bytes_max)

    def truncate_to(self, offset: Offset) -> Offset:
        """Cut off every batch that reaches `offset`; returns the new end. Blocks until it is durable."""
        return truncate.truncate_to(self._state, offset)

    def truncate_fully(self, start: Offset) -> None:
        """Throw everything away and go on at `start`. Blocks until it is durable."""
        truncate.truncate_fully(self._state, start)

    def scrub(self, *, around: Offset | None = None) -> Iterator[ScrubStep]:
        """Check every batch in small steps; damaged ranges are recorded and no longer read.

        With an offset, only those in the segment that holds it.
        """
        return scrub(self._state, around=around)

    def verification(self, piece: FileRange) -> Verification | None:
        """The verification of a range that `read` returned, to be worked on by a thread."""
        return verification_of(self._state, piece)

    def verification_at(
        self, base_offset: Offset, position: int = 0, expected: int | None = None, *, limit_bytes: int
    ) -> Verification | None:
        """The verification of so many bytes of a segment, from a batch on; None if there is no such place."""
        return verification_at(self._state, base_offset, position, expected, limit_bytes=limit_bytes)

    def distrust(self, offset: Offset) -> None:
        """Have what a reader gets from this offset on verified again, before it is served."""
        with suppress(PenstockError):
            for piece in read.read(self._state, offset, DISTRUSTED_BYTES, None).ranges:
                piece.file.unverify(piece.position, piece.length)

    def file_check(self, topic_id: TopicId, base_offset: Offset | None) -> FileCheck | None:
        """The check of a sealed segment's indexes and snapshot, or of the files of the whole log."""
        return file_check(self._state, topic_id, base_offset)

    def index_rebuild(self, base_offset: Offset, *, check: bool = True) -> IndexRebuild | None:
        """The rebuild of a sealed segment's indexes in a thread; with `check`, if any cannot be used."""
        return index_rebuild(self._state, base_offset, check=check)

    def begin_refill(self, token: str, *, may_have_gaps: bool) -> SegmentDraft | None:
        """The new form of the first damaged sealed segment, to be written by threads; None if there is none.

        `token` must be unique to it. A log that is compacted elsewhere `may_have_gaps` between offsets.
        """
        return begin_refill(self._state, token, may_have_gaps=may_have_gaps)

    def finish_refill(self, draft: SegmentDraft) -> bool:
        """Put it in place; False if the log has changed too much since. Blocks for a few syncs."""
        is_done = draft.finish()
        if is_done:
            self.checkpoint()
        return is_done

    @property
    def is_unsure(self) -> bool:
        """Whether producers and aborted transactions were derived while records were missing."""
        return self._state.unsure_from is not None

    def begin_producer_rebuild(self, token: str) -> ProducerRebuild | None:
        """The rebuild of producers and aborted transactions, by threads, if they are unsure.

        No segment may be damaged. `token` must be unique to it.
        """
        return ProducerRebuild(self._state, token) if self.is_unsure else None

    def quarantine(self, base_offset: Offset) -> None:
        """Move a damaged segment to the quarantine, which leaves a hole, or go on behind it. Blocks."""
        quarantine(self._state, base_offset)

    def roll(self) -> None:
        """Start a new segment, unless the active one is empty."""
        state = self._state
        state.check_writable()
        if state.segments.active.size_bytes:
            append.roll(state, state.end)

    def is_checkpoint_due(self, now: Instant) -> bool:
        """Whether it is time for a checkpoint. Call this every second or so."""
        state = self._state
        return bool(len(state.segments)) and state.stopped is None and self._timer.is_due(state, now)

    def maybe_checkpoint(self, now: Instant) -> bool:
        """Take a checkpoint if one is due; returns whether it was."""
        if not self.is_checkpoint_due(now):
            return False
        self.checkpoint()
        return True

    @property
    def is_checkpointed(self) -> bool:
        """Whether a start from the last checkpoint would read nothing, and a close need not wait."""
        return is_current(self._state)

    def checkpoint(self, done: Done | None = None) -> None:
        """Take a checkpoint without blocking. One runs at a time; a second one joins it."""
        timer = self._timer
        if done is not None:
            timer.waiting.append(done)
        if timer.running:
            return
        timer.running = True
        timer.taken(self._state)

        def finished(error: StorageError | None) -> None:
            timer.running = False
            self._park()
            waiting, timer.waiting = timer.waiting, []
            for call in waiting:
                call(error)

        BackgroundCheckpoint(self._state, finished).start()

    def _park(self) -> None:
        """If a start would read nothing, all of the active file is durable: it need not stay open."""
        state = self._state
        if len(state.segments) and state.stopped is None and is_current(state):
            writer = state.segments.active.writer
            if writer is not None:
                writer.park()

    def configure(self, options: LogOptions) -> None:
        """Go on with other options: they count from the next append, roll, read or expiry on.

        Whether batches are sealed changes a little later, when that is on disk.
        """
        state = self._state
        before, state.options = state.options, options
        state.segments.configure(options)
        if before.is_encrypted is not options.is_encrypted and state.vault is not None:
            self._switch_encryption(state.vault)

    def _switch_encryption(self, vault: LogVault) -> None:
        state, is_on = self._state, self._state.options.is_encrypted
        if state.stopped is not None:
            # The next start does it.
            return
        if state.keys is None:
            if not is_on:
                return
            rows = (KeyRow(state.segments[0].base_offset, PLAIN_ID),)
            state.keys = new_keys(state.disk, state.directory, vault, state.durability, rows, is_on=is_on)
        state.keys.is_on = is_on

        def ready(error: StorageError | None) -> None:
            if error is not None or state.stopped is not None or not len(state.segments):
                return
            keys = state.keys
            assert keys is not None
            if keys.is_on is is_on and (keys.table.current is not None) is not is_on:
                with suppress(DiskFull):
                    append.rekey(state)

        with suppress(DiskFull):
            # Without room for it, the next start does it.
            state.keys.prepare_spare(ready)

    @property
    def keys(self) -> LogKeys | None:
        """The keys of its batches; None on a node that has no keys."""
        return self._state.keys

    @property
    def is_sealed(self) -> bool:
        """Whether some of its batches are sealed, so that a read of them has work to do."""
        return self._state.key_table is not None

    def rewrap(self, done: Done) -> None:
        """Write the key table again, under the current master key, if it is under another one."""
        keys = self._state.keys
        if keys is None or keys.master_key == keys.vault.vault.keys.current:
            done(None)
            return
        try:
            keys.put(done)
        except StorageError as failed:
            done(failed)

    def renew_key(self) -> None:
        """What is appended from now on is in another segment, under another key. Blocks."""
        state = self._state
        if state.keys is not None:
            state.check_writable()
            state.keys.renew(state.segments, state.end)
            if state.segments.active.size_bytes:
                append.roll(state, state.end, is_rekeyed=False)

    def renew_keys(self, done: Done) -> None:
        """Have what is appended from now on under keys that no table on disk has had, in another segment.

        Like `rewrap`; a log that takes no writes, or whose batches are not sealed any more, gets no others.
        """
        state, keys = self._state, self._state.keys
        if keys is None or not keys.is_on or state.damage or state.stopped is not None:
            self.rewrap(done)
            return

        def ready(error: StorageError | None) -> None:
            if error is None and len(state.segments):
                error = _begin_under(state, keys, spare)
            done(error)

        try:
            spare = keys.renew_spare(ready)
        except StorageError as failed:
            done(failed)

    def sealed_under(self, keys: Container[bytes]) -> list[SegmentSummary]:
        """The sealed segments that have batches under one of these keys, and are not damaged."""
        state = self._state
        table = state.key_table
        if table is None:
            return []
        found = []
        for summary, segment in zip(self.segments()[:-1], state.segments, strict=False):
            ids = table.ids_between(summary.base_offset, summary.end_offset)
            if summary.size_bytes and not segment.damage and any(key_id in keys for key_id in ids):
                found.append(summary)
        return found

    def begin_reseal(self, token: str, base_offset: Offset) -> SegmentDraft | None:
        """A sealed segment as it is, under a new key, to be written by threads; None if that cannot be done.

        Its result goes to `finish_refill`, or it is abandoned and cancelled. Blocks for a moment.
        """
        return begin_reseal(self._state, token, base_offset)

    def abandon(self) -> None:
        """Close without making anything durable: the log is about to be removed.

        What was read of it may be on its way to a client: such ranges stay readable.
        """
        durability = self._state.durability
        durability.stop(LogAbandoned(f"the log {self.directory} was removed"))
        # Small files that are on their way must not end up in a log that is made in its place.
        durability.forget_requests(durability.synced)
        self._state.segments.abandon(durability.release)

    def close(self) -> None:
        """Make everything durable, so that the next start reads no batch. Blocks."""
        state = self._state
        if state.stopped is None:
            if not is_current(state):
                checkpoint_now(state)
            elif state.journal is not None:
                # The last checkpoint may have been taken before what it covers went to the journal.
                state.journal.covered(covered(state))
        state.segments.close()


def _begin_under(state: LogState, keys: LogKeys, spare: bytes) -> StorageError | None:
    """Begin a segment under this spare key, which is on disk; returns why that was not possible."""
    try:
        state.check_writable()
        append.rekey(state)
    except StorageError as failed:
        return failed
    if keys.table.rows[-1].key_id != spare:
        return StorageError("another segment began meanwhile")
    return None
