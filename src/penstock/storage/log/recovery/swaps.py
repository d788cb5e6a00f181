"""Finishing what compaction had decided when the power went.

    <base>.log.cleaned, .index.cleaned … → device, names too
    checkpoint: this segment is swapping, and has the new size → device
    <base>.log.cleaned → <base>.log …  → names to the device

Before the checkpoint, the new files are rubbish. After it, whatever still stands under its
other name takes its place: a start repeats the renames, of which some may have happened. A
compaction does not begin while a checkpoint on disk says `swapping`, so that no half-written
file can be mistaken for one of these.
"""

from penstock.storage.disk import Disk
from penstock.storage.log.files.checkpoint import Checkpoint
from penstock.storage.log.names import CLEANED, LOG, OFFSET_INDEX, TIME_INDEX, numbered

# The aborted transactions of a segment stay as they are: no marker is ever removed.
SWAPPED_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, LOG)


def redo_swaps(disk: Disk, directory: str, checkpoint: Checkpoint) -> None:
    """Give the rewritten files of swapping segments their names, durably; remove all others."""
    left = [name for name in disk.listdir(directory) if name.endswith(CLEANED)]
    swapping = {
        numbered(row.base_offset, suffix) + CLEANED
        for row in checkpoint.sealed
        if row.swapping
        for suffix in SWAPPED_SUFFIXES
    }
    for name in left:
        if name in swapping:
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(CLEANED)}")
        else:
            disk.remove(f"{directory}/{name}")
    if left:
        disk.sync_directory(directory)
