"""A thorough pass over a partition: every byte of it, and everything that must agree with it."""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.cli.inspection.directory import PartitionFiles
from penstock.cli.inspection.indexes import IndexWitness, read_indexes
from penstock.core.model import CorruptionError
from penstock.core.records import BatchIncomplete, InvalidRecord, read_records, validate_records
from penstock.storage.log.file_names import CHECKPOINT, IDENTITY, LOG, numbered
from penstock.storage.log.segment import CheckedBatch, checked_batches

Progress = Callable[[int], None]


class Meaning(enum.Enum):
    """What a finding means to whoever owns the data."""

    DAMAGE = "damage"
    TAIL = "tail"
    REBUILDABLE = "rebuildable"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    meaning: Meaning
    file: str
    what: str
    position: int | None = None


@dataclass(slots=True)
class _Pass:
    """Where the walk through the log has come to."""

    partition: PartitionFiles
    progress: Progress
    expected: int = -1
    lost: bool = False  # after damage, the next segment's base is not compared with anything


def verify(partition: PartitionFiles, progress: Progress) -> Iterator[Finding]:
    """Everything that is wrong, in the order of the log; `progress` hears of the bytes gone through."""
    yield from _verify_small_files(partition)
    walk = _Pass(partition, progress)
    for base, size in partition.segments.items():
        name = numbered(base, LOG)
        if walk.expected > base:
            yield Finding(
                Meaning.DAMAGE,
                name,
                f"begins at {base}, inside the segment before, which ends at {walk.expected}",
            )
        elif walk.expected not in (-1, base) and not walk.lost and _is_gapless(partition, base):
            yield Finding(Meaning.DAMAGE, name, f"offsets {walk.expected} to {base} are missing before it")
        yield from _verify_segment(walk, base, size)
    checkpoint = partition.checkpoint
    if checkpoint is not None and not walk.lost and walk.expected < checkpoint.recovery_point:
        what = f"vouches for offsets up to {checkpoint.recovery_point}, but the log ends at {walk.expected}"
        yield Finding(Meaning.DAMAGE, CHECKPOINT, what)


def _verify_small_files(partition: PartitionFiles) -> Iterator[Finding]:
    for name, why in partition.unreadable.items():
        meaning = Meaning.DAMAGE if name == IDENTITY else Meaning.REBUILDABLE
        yield Finding(meaning, name, why)
    for sealed in partition.checkpoint.sealed if partition.checkpoint else ():
        name = numbered(sealed.base_offset, LOG)
        size = partition.segments.get(sealed.base_offset)
        if size is None and sealed.base_offset >= min(partition.segments, default=0):
            yield Finding(Meaning.DAMAGE, name, "is missing: the checkpoint knows it")
        elif size is not None and size < sealed.size_bytes:
            yield Finding(
                Meaning.DAMAGE, name, f"has {size} bytes of the {sealed.size_bytes} in the checkpoint"
            )


def _verify_segment(walk: _Pass, base: int, size: int) -> Iterator[Finding]:
    partition, name = walk.partition, numbered(base, LOG)
    indexes, unusable = read_indexes(partition, base)
    for file_name, why in unusable:
        yield Finding(Meaning.REBUILDABLE, file_name, why)
    witness = IndexWitness(base, indexes)
    walk.expected, position = base, 0
    file = partition.disk.open(name, readonly=True)
    try:
        for checked in checked_batches(file, 0, size):
            what = _wrong_in(checked, walk.expected, _is_gapless(partition, base))
            if what:
                yield Finding(_meaning(partition, base, position), name, what, position)
            walk.expected = checked.header.next_offset
            position = checked.position + checked.header.size_bytes
            witness.batch(checked.position, checked.header)
            walk.progress(checked.header.size_bytes)
    except CorruptionError as error:
        walk.lost = True
        walk.progress(size - position)
        yield Finding(_meaning(partition, base, position, torn=error), name, str(error), position)
    finally:
        file.close()
    for file_name, why in () if walk.lost else witness.complaints():
        yield Finding(Meaning.REBUILDABLE, file_name, why)


def _wrong_in(checked: CheckedBatch, expected: int, gapless: bool) -> str:
    header = checked.header
    if header.base_offset < expected or (gapless and header.base_offset != expected):
        return f"offset {header.base_offset} stands where {expected} should"
    try:
        if header.record_count == header.last_offset_delta + 1:
            validate_records(checked.content)
        else:  # thinned out by compaction: gaps are fine, disorder is not
            for _ in read_records(checked.content):
                pass
    except (CorruptionError, InvalidRecord) as error:
        return f"the records from offset {header.base_offset} on: {error}"
    return ""


def _is_gapless(partition: PartitionFiles, base: int) -> bool:
    """Whether offsets must be complete: compaction marks its segments in the checkpoint."""
    checkpoint = partition.checkpoint
    if checkpoint is None:
        return True
    sealed = {int(row.base_offset): row.gapless for row in checkpoint.sealed}
    return sealed.get(base, checkpoint.gapless)


def _meaning(partition: PartitionFiles, base: int, position: int, torn: Exception | None = None) -> Meaning:
    """Above the checkpoint, what is broken was never known to be on disk: the next start cuts it off."""
    checkpoint = partition.checkpoint
    if checkpoint is not None:
        vouched_for = (base, position) < (checkpoint.segment, checkpoint.position)
        return Meaning.DAMAGE if vouched_for else Meaning.TAIL
    # Without a checkpoint only a batch that ends early, at the very end, is surely an unfinished write.
    is_unfinished = isinstance(torn, BatchIncomplete) and base == max(partition.segments)
    return Meaning.TAIL if is_unfinished else Meaning.DAMAGE
