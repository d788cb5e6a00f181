"""Reading partition directories without changing them, for `penstock log`.

A survey is one pass over the batch headers of each segment: counts, offsets, times. A verification
is one pass over every byte: CRCs, records, offsets, indexes, checkpoint.

Nothing is opened for writing and no lock is taken, so both can be run beside a broker; they
then describe the log as it was when they started. A finding is one of four: *damage* is synced
data that cannot be read, *unreadable* is a batch that is as its producer sent it and that nobody can
decode, a *tail* is the unfinished end of an interrupted write, which the next start truncates, and what is
*rebuildable* costs time and no data. Behind what is bad the verification goes on with the next good batch.

Encrypted batches are batches with headers and CRCs: a survey needs no keys. A verification opens them if it
is given the node's master keys, and says so if it is not.

What was taken out of a log lies in its quarantine. It is read as far as batches can be found in it; the key
table of the log has the keys of encrypted ones.

Left out: repair. A replica repairs itself from its leader; a single node quarantines what is
damaged when it starts.
"""

import enum
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.core.model import CorruptionError, PartitionIndex, PenstockError, TopicId
from penstock.core.records import (
    HEADER_BYTES,
    BatchHeader,
    BatchIncomplete,
    Record,
    check_batch,
    read_header,
    read_records,
    validate_records,
)
from penstock.core.records.batch import MAGIC_POSITION, SEALED
from penstock.core.replica import LeaderEpochHistory
from penstock.storage.disk import Buffer, Disk, File, PosixDisk
from penstock.storage.log.file_names import (
    CHECKPOINT,
    EPOCHS,
    IDENTITY,
    KEYS,
    LOG,
    QUARANTINE,
    numbered,
    parse_numbered,
)
from penstock.storage.log.files import (
    Checkpoint,
    decode_checkpoint,
    decode_epochs,
    decode_identity,
    read_file,
)
from penstock.storage.log.index import (
    ABORTED,
    OFFSETS,
    POSITION_BITS,
    POSITION_MASK,
    SHAPES,
    TIMES,
    IndexRowFormat,
    Words,
    parse_rows,
    parse_sealed,
)
from penstock.storage.log.keys import opened_table
from penstock.storage.log.segment import SCAN_BYTES, CheckedBatch, checked_batches, headers
from penstock.storage.sealing import BrokenSeal, KeyTable, KeyVault

T = TypeVar("T")
MAGIC = b"\x02"
# How far behind the last good batch an offset may be for its batch to belong there.
OFFSETS_LOST_MAX = 1 << 31
# How the names of files with batches go on in the quarantine.
KEPT = ("cut", "log")
Progress = Callable[[int], None]


class NotAPartitionDirectory(PenstockError):
    """The directory holds no partition."""


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A partition directory: its segments by base offset, and the small files that could be read."""

    path: str
    disk: Disk
    segments: dict[int, int]  # base offset -> size in bytes when we looked
    others: tuple[str, ...]
    topic_id: TopicId | None
    checkpoint: Checkpoint | None
    epochs: LeaderEpochHistory | None
    unreadable: dict[str, str]  # small file -> why
    # What opens batches; None if there is no such table, or no master key for it.
    keys: KeyTable | None = None

    @property
    def size_bytes(self) -> int:
        return sum(self.segments.values())


def partitions_below(path: str) -> list[str]:
    """Every partition directory at or below `path`: a partition, a topic, or a whole data directory."""
    if not os.path.isdir(path):
        raise NotAPartitionDirectory(f"{path} is not a directory")
    found = sorted(where for where, _, names in os.walk(path) if any(_is_segment(name) for name in names))
    if not found:
        raise NotAPartitionDirectory(
            f"{path} holds no log: expected files like 00000000000000000000.log in it or below"
        )
    return found


def read_partition(path: str, vault: KeyVault | None = None) -> PartitionFiles:
    """Look into one partition directory; raises KeyUnavailable if the `vault` lacks the key of its log."""
    disk = PosixDisk(path)
    names = disk.listdir("")
    parsed = {name: parse_numbered(name) for name in names}
    segments = {row[0]: disk.size(name) for name, row in parsed.items() if row and row[1] == LOG}
    unreadable: dict[str, str] = {}

    def decoded(name: str, decode: Callable[[Buffer], T]) -> T | None:
        content = read_file(disk, name)
        if content is None:
            unreadable[name] = "missing"
            return None
        try:
            return decode(content)
        except CorruptionError as error:
            unreadable[name] = str(error)
            return None

    topic_id, keys = decoded(IDENTITY, decode_identity), None
    index = os.path.basename(os.path.abspath(path)).partition(".")[0]
    if vault is not None and KEYS in names and topic_id is not None and index.isdecimal():
        own = vault.of(topic_id, PartitionIndex(int(index)))
        keys = decoded(KEYS, lambda content: opened_table(own, bytes(content)))
    return PartitionFiles(
        path=path,
        disk=disk,
        segments=dict(sorted(segments.items())),
        others=tuple(name for name, row in parsed.items() if not row),
        topic_id=topic_id,
        checkpoint=decoded(CHECKPOINT, decode_checkpoint),
        epochs=decoded(EPOCHS, decode_epochs),
        unreadable=unreadable,
        keys=keys,
    )


def _is_segment(name: str) -> bool:
    row = parse_numbered(name)
    return row is not None and row[1] == LOG


class SegmentIndexes(NamedTuple):
    """The rows of a segment's three tables; empty where a table cannot be used."""

    offsets: Words = ()
    times: Words = ()
    aborted: Words = ()


def read_indexes(partition: PartitionFiles, base_offset: int) -> tuple[SegmentIndexes, list[tuple[str, str]]]:
    """A segment's tables, and which files are unusable and why."""
    tables: dict[IndexRowFormat, Words] = {}
    unusable = []
    for shape in SHAPES:
        name = numbered(base_offset, shape.suffix)
        try:
            tables[shape] = _read(partition, base_offset, shape)
        except CorruptionError as error:
            unusable.append((name, str(error)))
    return SegmentIndexes(tables.get(OFFSETS, ()), tables.get(TIMES, ()), tables.get(ABORTED, ())), unusable


def _read(partition: PartitionFiles, base_offset: int, shape: IndexRowFormat) -> Words:
    content = read_file(partition.disk, numbered(base_offset, shape.suffix))
    if base_offset != max(partition.segments):
        return parse_sealed(shape, content or b"")
    # The tables of the last segment grow; only as much as a checkpoint marked is ever used.
    checkpoint = partition.checkpoint
    if checkpoint is None or checkpoint.segment != base_offset:
        return ()
    mark = checkpoint.marks[SHAPES.index(shape)]
    return parse_rows(shape, content or b"", mark.rows, mark.crc)


@dataclass(slots=True)
class _Table:
    """One table during the walk: the row that comes next, and the first complaint."""

    shape: IndexRowFormat
    row: int = 0
    complaint: str = ""


class IndexVerifier:
    """Sees every batch in order, and compares the tables with what it saw."""

    def __init__(self, base_offset: int, indexes: SegmentIndexes) -> None:
        self._base_offset = base_offset
        self._indexes = indexes
        self._offsets = _Table(OFFSETS)
        self._times = _Table(TIMES)
        self._max_timestamp = -1
        self._end_offset = base_offset

    def batch(self, position: int, header: BatchHeader) -> None:
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        self._end_offset = header.next_offset
        self._check_offset_row(position, header)
        self._check_time_rows(header)

    def complaints(self) -> Iterator[tuple[str, str]]:
        """What is wrong with each table, once all batches have gone by."""
        if self._offsets.row < len(self._indexes.offsets):
            self._offsets.complaint = self._offsets.complaint or "points behind the end of the segment"
        # A sealed table ends with a row for the whole segment, named by its last record.
        rest = list(self._indexes.times[2 * self._times.row :])
        if rest and rest != [self._max_timestamp, self._end_offset - 1]:
            self._times.complaint = self._times.complaint or "points behind the end of the segment"
        for table in (self._offsets, self._times):
            if table.complaint:
                yield numbered(self._base_offset, table.shape.suffix), table.complaint
        aborted = self._indexes.aborted
        rows = zip(aborted[1::4], aborted[2::4], strict=False)
        if any(not 0 <= first <= last < self._end_offset for first, last in rows):
            yield numbered(self._base_offset, ABORTED.suffix), "names offsets that the log does not hold"

    def _check_offset_row(self, position: int, header: BatchHeader) -> None:
        table, offsets = self._offsets, self._indexes.offsets
        if table.row >= len(offsets):
            return
        row = offsets[table.row]
        if row & POSITION_MASK > position:
            return
        offset = self._base_offset + (row >> POSITION_BITS)
        if (row & POSITION_MASK, offset) != (position, header.base_offset) and not table.complaint:
            table.complaint = (
                f"row {table.row} says that offset {offset} is at {row & POSITION_MASK}; it is not"
            )
        table.row += 1

    def _check_time_rows(self, header: BatchHeader) -> None:
        table, times = self._times, self._indexes.times
        while 2 * table.row < len(times) and times[2 * table.row + 1] <= header.base_offset:
            timestamp, offset = times[2 * table.row], times[2 * table.row + 1]
            if (timestamp, offset) != (self._max_timestamp, header.base_offset) and not table.complaint:
                table.complaint = f"row {table.row} says {timestamp} at offset {offset}, which is wrong"
            table.row += 1


@dataclass(slots=True)
class SegmentStats:
    """What the headers of one segment say."""

    base_offset: int
    size_bytes: int
    end_offset: int
    batches: int = 0
    records: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1
    codecs: dict[str, int] = field(default_factory=dict)
    control_batches: int = 0
    transactional_batches: int = 0
    sealed_batches: int = 0
    # Where the headers stop making sense, and why; None if they go on to the end of the file.
    broken_at: int | None = None
    broken_why: str = ""

    def note(self, header: BatchHeader) -> None:
        self.end_offset = header.next_offset
        self.batches += 1
        self.records += header.record_count
        if self.first_timestamp < 0:
            self.first_timestamp = header.base_timestamp
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        codec = header.codec.name.lower()
        self.codecs[codec] = self.codecs.get(codec, 0) + 1
        self.control_batches += header.is_control
        self.transactional_batches += header.is_transactional
        self.sealed_batches += bool(header.attributes & SEALED)


def survey(partition: PartitionFiles) -> list[SegmentStats]:
    """Every segment of a partition, oldest first."""
    return [_survey_segment(partition, base, size) for base, size in partition.segments.items()]


def _survey_segment(partition: PartitionFiles, base_offset: int, size_bytes: int) -> SegmentStats:
    found = SegmentStats(base_offset, size_bytes, base_offset)
    position = 0
    file = partition.disk.open(numbered(base_offset, LOG), readonly=True)
    try:
        for placed in headers(file, 0, size_bytes, SCAN_BYTES):
            found.note(placed.header)
            position = placed.position + placed.header.size_bytes
    except CorruptionError as error:
        found.broken_at, found.broken_why = position, str(error)
    finally:
        file.close()
    return found


class Severity(enum.Enum):
    """What a finding means to whoever owns the data."""

    DAMAGE = "damage"
    UNREADABLE = "unreadable"
    TAIL = "tail"
    REBUILDABLE = "rebuildable"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    meaning: Severity
    file: str
    what: str
    position: int | None = None
    # The first offset that is concerned.
    offset: int | None = None


@dataclass(slots=True)
class _Pass:
    """Where the walk through the log has come to."""

    partition: PartitionFiles
    progress: Progress
    expected: int = -1
    lost: bool = False  # after damage, the next segment's base is not compared with anything
    sealed: int = 0  # batches that could not be opened for lack of a key


def verify(partition: PartitionFiles, progress: Progress) -> Iterator[Finding]:
    """Everything that is wrong, in the order of the log; `progress` is called with the bytes read."""
    yield from _verify_small_files(partition)
    walk = _Pass(partition, progress)
    for base, size in partition.segments.items():
        name = numbered(base, LOG)
        if walk.expected > base:
            yield Finding(
                Severity.DAMAGE,
                name,
                f"begins at {base}, inside the segment before, which ends at {walk.expected}",
            )
        elif walk.expected not in (-1, base) and not walk.lost and _is_gapless(partition, base):
            yield Finding(Severity.DAMAGE, name, f"offsets {walk.expected} to {base} are missing before it")
        yield from _verify_segment(walk, base, size)
    if walk.sealed:
        what = (
            f"{walk.sealed} batches are encrypted, and only their CRCs were checked: --config names the keys"
        )
        yield Finding(Severity.SEALED, KEYS, what)
    checkpoint = partition.checkpoint
    if checkpoint is not None and not walk.lost and walk.expected < checkpoint.recovery_point:
        what = f"vouches for offsets up to {checkpoint.recovery_point}, but the log ends at {walk.expected}"
        yield Finding(Severity.DAMAGE, CHECKPOINT, what)


def _verify_small_files(partition: PartitionFiles) -> Iterator[Finding]:
    for name, why in partition.unreadable.items():
        meaning = Severity.DAMAGE if name in (IDENTITY, KEYS) else Severity.REBUILDABLE
        yield Finding(meaning, name, why)
    for sealed in partition.checkpoint.sealed if partition.checkpoint else ():
        name = numbered(sealed.base_offset, LOG)
        size = partition.segments.get(sealed.base_offset)
        if size is None and sealed.base_offset >= min(partition.segments, default=0):
            yield Finding(Severity.DAMAGE, name, "is missing: the checkpoint knows it")
        elif size is not None and size < sealed.size_bytes:
            yield Finding(
                Severity.DAMAGE, name, f"has {size} bytes of the {sealed.size_bytes} in the checkpoint"
            )


def _verify_segment(walk: _Pass, base: int, size: int) -> Iterator[Finding]:
    partition, name = walk.partition, numbered(base, LOG)
    indexes, unusable = read_indexes(partition, base)
    for file_name, why in unusable:
        yield Finding(Severity.REBUILDABLE, file_name, why)
    verifier = IndexVerifier(base, indexes)
    walk.expected, position, is_broken = base, 0, False
    file = partition.disk.open(name, readonly=True)
    try:
        while position < size:
            try:
                for checked in checked_batches(file, position, size):
                    found = _wrong_in(walk, checked, gapless=_is_gapless(partition, base) and not is_broken)
                    if found is not None:
                        meaning, what, offset = found
                        meaning = meaning or _meaning(partition, base, checked.position)
                        yield Finding(meaning, name, what, checked.position, offset)
                    walk.expected, is_broken = checked.header.next_offset, False
                    position = checked.position + checked.header.size_bytes
                    verifier.batch(checked.position, checked.header)
                    walk.progress(checked.header.size_bytes)
            except CorruptionError as error:
                walk.lost = is_broken = True
                meaning = _meaning(partition, base, position, torn=error)
                yield Finding(meaning, name, str(error), position, walk.expected)
                # What comes behind an unfinished end is cut off with it.
                following = (
                    size if meaning is Severity.TAIL else _next_batch(file, position, size, walk.expected)
                )
                walk.progress(following - position)
                position = following
    finally:
        file.close()
    for file_name, why in () if walk.lost else verifier.complaints():
        yield Finding(Severity.REBUILDABLE, file_name, why)


class QuarantinedBatch(NamedTuple):
    """A batch in a file of the quarantine; without records, it is not known why there are none: `trouble`."""

    header: BatchHeader
    records: tuple[Record, ...]
    trouble: str = ""


def quarantined_files(partition: PartitionFiles) -> list[str]:
    """Files with batches that were taken out of the log, by name: that begins with their first offset."""
    if not partition.disk.is_directory(QUARANTINE):
        return []
    names = partition.disk.listdir(QUARANTINE)
    return [
        f"{QUARANTINE}/{name}" for name in sorted(names) if f"{name}.".partition(".")[2].split(".")[0] in KEPT
    ]


def quarantined_batches(partition: PartitionFiles, name: str) -> Iterator[QuarantinedBatch]:
    """Every batch that can be found in a file of the quarantine, also behind what is damaged."""
    with closing(partition.disk.open(name, readonly=True)) as file:
        position, size, expected = 0, file.size(), 0
        while position < size:
            try:
                for checked in checked_batches(file, position, size):
                    yield _opened(partition, checked)
                    expected = checked.header.next_offset
                    position = checked.position + checked.header.size_bytes
            except CorruptionError:
                position = _next_batch(file, position, size, expected)


def _opened(partition: PartitionFiles, checked: CheckedBatch) -> QuarantinedBatch:
    header = checked.header
    try:
        content: Buffer = checked.content
        if partition.keys is not None:
            content = partition.keys.unseal_copy(content, header)
        elif header.attributes & SEALED:
            return QuarantinedBatch(header, (), "encrypted: --config names the keys")
        return QuarantinedBatch(header, tuple(read_records(memoryview(content))))
    except CorruptionError as error:
        return QuarantinedBatch(header, (), str(error))


def _next_batch(file: File, position: int, size: int, expected: int) -> int:
    """Where the first good batch behind a bad one begins, or the end of the segment."""
    at = position + 1
    while at < size:
        chunk = file.pread(at, min(SCAN_BYTES, size - at))
        found = chunk.find(MAGIC, MAGIC_POSITION)
        while found >= 0:
            candidate = at + found - MAGIC_POSITION
            if _is_batch(file, candidate, size, expected):
                return candidate
            found = chunk.find(MAGIC, found + 1)
        if len(chunk) <= MAGIC_POSITION:
            return size
        # A magic number that stands before its place in this chunk was looked at in the one before.
        at += len(chunk) - MAGIC_POSITION
    return size


def _is_batch(file: File, position: int, size: int, expected: int) -> bool:
    if position + HEADER_BYTES > size:
        return False
    try:
        header = read_header(file.pread(position, HEADER_BYTES))
        if not expected <= header.base_offset <= expected + OFFSETS_LOST_MAX:
            return False
        if position + header.size_bytes > size:
            return False
        check_batch(file.pread(position, header.size_bytes), compacted=True)
    except CorruptionError:
        return False
    return True


def _wrong_in(
    walk: _Pass, checked: CheckedBatch, *, gapless: bool
) -> tuple[Severity | None, str, int] | None:
    """What is wrong with a batch, from which offset on, and what that means if its place does not matter."""
    header, expected, content = checked.header, walk.expected, checked.content
    if header.base_offset < expected or (gapless and header.base_offset != expected):
        what = f"offset {header.base_offset} stands where {expected} should"
        return None, what, header.base_offset
    if walk.partition.keys is not None:
        try:
            content = memoryview(walk.partition.keys.unseal_one(content, header))
        except BrokenSeal as broken:
            return Severity.DAMAGE, str(broken), header.base_offset
    elif header.attributes & SEALED:
        walk.sealed += 1
        return None
    try:
        if header.record_count == header.last_offset_delta + 1:
            validate_records(content)
        else:  # thinned out by compaction: gaps are fine, disorder is not
            for _ in read_records(content):
                pass
    except CorruptionError as error:
        what = f"the records from offset {header.base_offset} to {header.last_offset}: {error}"
        return Severity.UNREADABLE, what, header.base_offset
    return None


def _is_gapless(partition: PartitionFiles, base: int) -> bool:
    """Whether offsets must be complete: compaction marks its segments in the checkpoint."""
    checkpoint = partition.checkpoint
    if checkpoint is None:
        return True
    sealed = {int(row.base_offset): row.gapless for row in checkpoint.sealed}
    return sealed.get(base, checkpoint.gapless)


def _meaning(partition: PartitionFiles, base: int, position: int, torn: Exception | None = None) -> Severity:
    """Above the checkpoint, what is broken was never known to be on disk: the next start truncates it."""
    checkpoint = partition.checkpoint
    if checkpoint is not None:
        vouched_for = (base, position) < (checkpoint.segment, checkpoint.position)
        return Severity.DAMAGE if vouched_for else Severity.TAIL
    # Without a checkpoint only a batch that ends early, at the very end, is surely an unfinished write.
    is_unfinished = isinstance(torn, BatchIncomplete) and base == max(partition.segments)
    return Severity.TAIL if is_unfinished else Severity.DAMAGE
