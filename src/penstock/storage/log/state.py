"""Everything that makes up one open log: the parts that its operations work on."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.core.model import CorruptionError, Offset, Timestamp
from penstock.core.records import BatchHeader, Buffer, read_control
from penstock.core.replica import AbortedTransaction, LeaderEpochHistory, ProducerStateManager
from penstock.storage.disk import Disk
from penstock.storage.journal import LogJournal
from penstock.storage.log.durability import Committer, Durability
from penstock.storage.log.files import NO_TIME, Checkpoint
from penstock.storage.log.index import ActiveIndex
from penstock.storage.log.keys import LogKeys
from penstock.storage.log.loss import NOTHING_LOST, NotedLoss, remove_loss, write_loss
from penstock.storage.log.segment import Segment
from penstock.storage.log.segments import Segments
from penstock.storage.log.types import CorruptRange, LogOptions, LogStats, LogStopped
from penstock.storage.sealing import KeyTable, LogVault


class LogServices(NamedTuple):
    """What a log uses of its node, if there is one."""

    commit: Committer | None = None
    # A nanosecond clock.
    ticks: Callable[[], int] | None = None
    journal: LogJournal | None = None
    # The wall clock when the log is opened.
    now: Timestamp = NO_TIME
    # Where the keys of its key table come from.
    vault: LogVault | None = None


class LogState:
    """The parts of a log. Only the operations of this package change them."""

    __slots__ = (
        "checkpoint",
        "damage",
        "directory",
        "discard",
        "disk",
        "doubt",
        "durability",
        "end",
        "epochs",
        "epochs_changed",
        "high_watermark",
        "is_open",
        "journal",
        "keys",
        "last_append_at",
        "lost_end",
        "next_start",
        "noted",
        "opened_at",
        "options",
        "producers",
        "segments",
        "start",
        "start_persisted",
        "stats",
        "ticks",
        "unsure_from",
        "vault",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        durability: Durability,
        checkpoint: Checkpoint,
        services: LogServices,
    ) -> None:
        self.disk = disk
        self.journal = services.journal
        self.directory = directory
        self.options = options
        self.durability = durability
        self.checkpoint = checkpoint
        self.ticks = services.ticks
        self.vault = services.vault
        # None: no batch is sealed, and none ever was.
        self.keys: LogKeys | None = None
        # Removes files that no start needs any more; None: they are removed at once, which blocks.
        self.discard: Callable[[list[str], int], None] | None = None
        self.segments: Segments
        self.epochs = LeaderEpochHistory()
        self.epochs_changed = False
        self.producers = ProducerStateManager()
        self.start = checkpoint.log_start
        # Where the log is about to start: every checkpoint from now on says so. 0 if it is not to move.
        self.next_start = Offset(0)
        # The log start that was last made durable before segments below it were deleted.
        self.start_persisted: Offset | None = None
        self.end = checkpoint.recovery_point
        # A log start that moved may be newer; only committed records are deleted.
        self.high_watermark = max(checkpoint.high_watermark, checkpoint.log_start)
        self.last_append_at = checkpoint.taken_at
        self.opened_at = services.now
        # Producers and aborted transactions were derived while records from here on were missing, until
        # they are rebuilt (see `producer_rebuild`). No snapshot behind it is written meanwhile.
        self.unsure_from = checkpoint.unsure_from
        # Where the log ended that was durable, if its end was lost since.
        self.lost_end = Offset(0)
        # Why the log may have been longer still.
        self.doubt = ""
        # What the file beside the log says of all this.
        self.noted = NOTHING_LOST
        self.stats = LogStats()
        # While a log is opened nobody else waits.
        self.is_open = False
        # What cannot be read, by its first offset; each segment has its own part of it.
        self.damage: dict[Offset, CorruptRange] = {}

    @property
    def replayed_at(self) -> Timestamp:
        """When producers that are replayed count as seen.

        Their records may carry any time, and the checkpoint may be old: they would be forgotten while
        they still send again what they sent before.
        """
        return max(self.checkpoint.taken_at, self.opened_at)

    @property
    def key_table(self) -> KeyTable | None:
        """What opens the batches of this log now; None if all of them are plain."""
        return None if self.keys is None or self.keys.table.is_plain else self.keys.table

    @property
    def active_index(self) -> ActiveIndex:
        index = self.segments.active.index
        assert isinstance(index, ActiveIndex)
        return index

    def note_damage(self, index: int, start: Offset, position: int, reason: str) -> None:
        """A segment turned out to be unreadable from this offset and position on, to its end."""
        segment = self.segments[index]
        end = self.segments.end_of(index, self.end)
        self.add_damage(
            segment,
            CorruptRange(segment.base_offset, start, end, reason, position, segment.size_bytes),
        )

    def add_damage(self, segment: Segment, damage: CorruptRange) -> bool:
        """Note that a range of a segment cannot be read; returns whether that is news."""
        for known in segment.damage:
            if known.start <= damage.start and damage.end <= known.end:
                return False
        kept = [known for known in segment.damage if not _overlap(known, damage)]
        for known in segment.damage:
            if _overlap(known, damage):
                damage = damage._replace(
                    start=min(known.start, damage.start),
                    end=max(known.end, damage.end),
                    position=min(known.position, damage.position),
                    stop=max(known.stop, damage.stop),
                )
        self.set_damage(segment, sorted([*kept, damage]))
        self.stats.damaged_ranges += 1
        return True

    def set_damage(self, segment: Segment, damage: Iterable[CorruptRange]) -> None:
        """Replace all that is known to be damaged in a segment."""
        for known in segment.damage:
            self.damage.pop(known.start, None)
        segment.damage = tuple(damage)
        for known in segment.damage:
            self.damage[known.start] = known

    def note_unsure(self, offset: Offset) -> None:
        """Records from `offset` on were missing when producers and aborted transactions were derived."""
        self.unsure_from = offset if self.unsure_from is None else min(self.unsure_from, offset)

    def note_loss(self) -> None:
        """Bring the file up to date that says what is missing, durably. Blocks if something has changed."""
        lost_end = self.lost_end if self.end < self.lost_end else Offset(0)
        loss = NotedLoss(lost_end, self.doubt, tuple(self.damage[start] for start in sorted(self.damage)))
        if loss != self.noted and write_loss(self.disk, self.directory, loss):
            self.noted = loss

    def note_doubt(self) -> None:
        """Before a checkpoint: note a doubt that no start would find any more. Blocks if there is one."""
        if self.doubt and self.doubt != self.noted.doubt:
            self.note_loss()

    def accept_loss(self) -> None:
        """The end of the log is right as it is; what cannot be read stays noted."""
        self.doubt, self.lost_end = "", Offset(0)
        if self.noted.damage:
            self.note_loss()
        elif self.noted != NOTHING_LOST and remove_loss(self.disk, self.directory):
            self.noted = NOTHING_LOST

    def reach(self, segment: Segment) -> Offset:
        """The end of what is in this segment or before it, which was the active one once."""
        segments = self.segments
        return self.end if segment is segments.active else segments.reach_of(segment, self.end)

    @property
    def stopped(self) -> BaseException | None:
        """Why nothing may be written: a failed sync, or damage in the segment that would grow."""
        # A log that was closed has no segments.
        damage = self.segments.active.damage if self.damage and len(self.segments) else ()
        if damage and self.durability.stopped is None:
            return CorruptionError(
                f"its last segment is damaged at offset {damage[0].start}: {damage[0].reason}"
            )
        return self.durability.stopped

    def check_writable(self) -> None:
        if self.damage or self.durability.stopped is not None:
            cause = self.stopped
            if cause is not None:
                raise LogStopped(self.directory, cause)


def _overlap(one: CorruptRange, other: CorruptRange) -> bool:
    return one.start < other.end and other.start < one.end


def fold_batch(
    producers: ProducerStateManager, header: BatchHeader, content: Buffer, now: Timestamp
) -> AbortedTransaction | None:
    """Update the state for a producer's batch that is in the log; returns the transaction it aborted.

    `header` and `content` carry the offsets that the batch has in the log.
    """
    if header.is_control:
        return producers.update_marker(read_control(content), now)
    producers.update(header, Offset(header.base_offset), now)
    return None
