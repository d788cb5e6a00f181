"""What a partition's log guarantees across power cuts and bad disks.

A `DurabilityChecker` records what was appended, what was reported durable, and what was removed
on purpose, in the order it happened. After a restart it compares that with what the log holds, and
names every difference that a power cut does not explain:

    history   [ batch ][ batch ][ batch ][ batch ][ batch ]
               ↑ start              durable ↑            ↑ appended
    found     must begin at the start, reach at least `durable`, and be a prefix of the history

A removal is announced before it starts and confirmed when it returns; if the power went off in
between, either outcome is right.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.core.model import CorruptionError, Offset
from penstock.core.records import check_batch, read_header
from penstock.storage.log import DamagedRange, PartitionLog

READ_BYTES = 4096


class LogAnomaly(enum.Enum):
    """What must never happen to a log."""

    LOST = "reported durable, but gone"
    ALTERED = "other bytes than were appended"
    UNKNOWN = "a batch that was never appended, or had been cut off"
    GAP = "offsets do not follow one another"
    START = "the log starts where it never did"
    BLAMED = "reported as damage, though the disk was in order"
    UNREPORTED = "damaged, and not reported"
    EPOCH = "the leader epochs do not match the batches"
    LOOKUP = "a search by offset or time leads to the wrong place"


class LogViolation(NamedTuple):
    """One anomaly, and where."""

    anomaly: LogAnomaly
    detail: str


class StoredBatch(NamedTuple):
    """One batch as it stands in a log."""

    base: int
    end: int
    content: bytes


class RecoveredLog(NamedTuple):
    """What a log holds after a restart. `damaged` are ranges that it, or a CRC, reports as lost."""

    start: int
    end: int
    synced: int
    batches: tuple[StoredBatch, ...]
    damaged: tuple[tuple[int, int], ...] = ()


class DurabilityChecker:
    """The history of one log, and the check of what is found of it."""

    def __init__(self) -> None:
        self._history: list[StoredBatch] = []
        self._refused: list[StoredBatch] = []
        self._durable = 0
        self._starts = (0, 0)
        self._restart: int | None = None

    @property
    def history(self) -> Sequence[StoredBatch]:
        """All that may be there."""
        return self._history

    @property
    def durable(self) -> int:
        """All below this must be there."""
        return self._durable

    def appended(self, batch: StoredBatch) -> None:
        """A batch is being appended: from now on it may be there."""
        self._history.append(batch)

    def refused(self, end: int) -> None:
        """The last appends failed, and the log ends at `end` again: they may be there, or not.

        Their producers do not know the outcome, as after a lost connection.
        """
        self._refused += [batch for batch in self._history if batch.base >= end]
        self._history = [batch for batch in self._history if batch.base < end]

    def made_durable(self, end: int) -> None:
        """The log reported that all below `end` survives a power cut."""
        self._durable = max(self._durable, end)

    def cutting(self, offset: int) -> None:
        """A truncation begins: what reaches `offset` may go."""
        kept = [batch.end for batch in self._history if batch.end <= offset]
        self._durable = min(self._durable, max(kept, default=self._starts[0]))

    def was_cut(self, end: int) -> None:
        """The truncation returned: what it took away must not come back."""
        self._history = [batch for batch in self._history if batch.end <= end]
        self._durable = min(self._durable, end)

    def forgetting(self, start_max: int) -> None:
        """Retention, or delete-records, begins: the start may rise as far as this."""
        self._starts = (self._starts[0], max(start_max, self._starts[0]))

    def forgot(self, start: int) -> None:
        """It returned: the log starts here now, for good."""
        self._starts = (start, start)

    def may_start_at(self, start: int) -> None:
        """Where the log starts got lost with the file that said so: lower is right as well."""
        self._starts = (min(start, self._starts[0]), self._starts[1])

    def restarting(self, start: int) -> None:
        """All of the log is being thrown away, to go on at `start`."""
        self._restart = start
        self._durable = 0

    def restarted(self) -> None:
        """It returned: nothing of the old log may come back."""
        assert self._restart is not None
        self._adopt(RecoveredLog(self._restart, self._restart, self._restart, ()))

    def judge(self, found: RecoveredLog, *, disk_was_damaged: bool = False) -> list[LogViolation]:
        """Compare; afterwards, what was found is the history to go on from."""
        if self._restart is not None and not found.batches and found.start == found.end == self._restart:
            violations = []
        else:
            violations = [
                *self._judge_edges(found),
                *_judge_chain(found),
                *self._judge_batches(found),
                *self._judge_missing(found),
            ]
        if found.damaged and not disk_was_damaged:
            violations.append(LogViolation(LogAnomaly.BLAMED, f"{found.damaged}"))
        self._adopt(found)
        return violations

    def _adopt(self, found: RecoveredLog) -> None:
        # What lies below the start stays known: a start that gets lost may bring it back.
        below = [batch for batch in self._history if batch.end <= found.start]
        self._history = [*below, *found.batches]
        self._refused.clear()
        self._durable = found.synced
        self._starts = (found.start, found.start)
        self._restart = None

    def _judge_edges(self, found: RecoveredLog) -> Iterator[LogViolation]:
        low, high = self._starts
        # A log that was being thrown away may have lost its first part only.
        if not low <= found.start <= high and found.start != self._restart:
            yield LogViolation(LogAnomaly.START, f"starts at {found.start}, not within {low}..{high}")
        if found.end < self._durable:
            yield LogViolation(LogAnomaly.LOST, f"ends at {found.end}, was durable to {self._durable}")

    def _judge_batches(self, found: RecoveredLog) -> Iterator[LogViolation]:
        known = {batch.base: batch for batch in self._history}
        for batch in found.batches:
            if batch in self._refused and batch.base >= self._durable:
                continue
            appended = known.get(batch.base)
            if appended is None:
                yield LogViolation(LogAnomaly.UNKNOWN, f"offset {batch.base}")
            elif appended != batch:
                yield LogViolation(LogAnomaly.ALTERED, f"offset {batch.base}")

    def _judge_missing(self, found: RecoveredLog) -> Iterator[LogViolation]:
        there = {batch.base for batch in found.batches}
        missing = [
            batch
            for batch in self._history
            if found.start < batch.end <= self._durable and batch.base not in there
        ]
        for batch in missing:
            if not any(start < batch.end and batch.base < end for start, end in found.damaged):
                yield LogViolation(LogAnomaly.LOST, f"offsets {batch.base}..{batch.end}")


def _judge_chain(found: RecoveredLog) -> Iterator[LogViolation]:
    expected = None
    for batch in found.batches:
        in_order = batch.base <= found.start < batch.end if expected is None else batch.base == expected
        in_order = in_order or any(end == batch.base for _, end in found.damaged)
        if not in_order:
            yield LogViolation(
                LogAnomaly.GAP, f"offset {batch.base} where {expected or found.start} should be"
            )
        expected = batch.end
    last = expected if expected is not None else found.start
    if _behind_damage(found.damaged, last) < found.end:
        yield LogViolation(LogAnomaly.GAP, f"batches end at {last}, the log at {found.end}")


def _behind_damage(damaged: Sequence[tuple[int, int]], offset: int) -> int:
    """Where the damage ends that begins at or before `offset`; the offset itself if none does."""
    for start, end in sorted(damaged):
        if start <= offset < end:
            offset = end
    return offset


def read_back(log: PartitionLog) -> RecoveredLog:
    """Everything a reader gets out of a log: checks CRCs, and goes on behind damage."""
    batches: list[StoredBatch] = []
    damaged: list[tuple[int, int]] = [(damage.start, damage.end) for damage in log.corruption]
    offset = log.start
    while offset < log.end:
        try:
            content = log.read(offset, READ_BYTES).to_bytes()
            more = list(_split(content)) if content else []
        except DamagedRange as damage:
            damaged.append((min(damage.start, offset), damage.end))
            offset = Offset(max(damage.end, offset + 1))
            continue
        except CorruptionError:
            # The bytes came, and their CRC says that they are wrong: the scrub will find it too.
            for _ in log.scrub():
                pass
            hit = [damage for damage in log.corruption if damage.start <= offset or damage.end > offset]
            end = max((damage.end for damage in hit), default=log.end)
            damaged.append((offset, end))
            offset = Offset(end)
            continue
        if not more:
            break
        batches += more
        offset = Offset(more[-1].end)
    return RecoveredLog(log.start, log.end, log.synced, tuple(batches), tuple(damaged))


def check_epochs(log: PartitionLog, batches: Sequence[StoredBatch]) -> list[LogViolation]:
    """Compare the epoch in every batch with the log's own account of them."""
    wrong = []
    for batch in batches:
        written, known = read_header(batch.content).leader_epoch, log.epochs.epoch_at(Offset(batch.base))
        # What begins below the log start is forgotten on purpose.
        if written != known and batch.base >= log.start:
            wrong.append(
                LogViolation(LogAnomaly.EPOCH, f"offset {batch.base} has {written}, the log says {known}")
            )
    return wrong


def _split(content: bytes) -> Iterator[StoredBatch]:
    position = 0
    while position < len(content):
        header = check_batch(content, position, compacted=True)
        end = position + header.size_bytes
        yield StoredBatch(header.base_offset, header.next_offset, content[position:end])
        position = end
