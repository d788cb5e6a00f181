"""What lies in the quarantines of a node's logs: how much it is, and its removal.

Damaged and doubtful bytes that are taken out of a log are kept beside it, for whoever wants to look at them.
The node never reads them again, and removes them only if an operator asks for it.
"""

from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from penstock.core.model import MILLISECOND, Timestamp
from penstock.storage.disk import Disk, NoSuchFile
from penstock.storage.log.file_names import QUARANTINE


class QuarantineSize(NamedTuple):
    """How many files there are, and how many bytes in them."""

    files: int
    size_bytes: int


def measure_quarantines(disk: Disk, directories: Iterable[str]) -> dict[str, QuarantineSize]:
    """What each of these logs has in quarantine. For a thread: blocks on the disk."""
    return {directory: _measure(disk, directory) for directory in directories}


def _measure(disk: Disk, directory: str) -> QuarantineSize:
    files = size_bytes = 0
    for path in _paths(disk, directory):
        try:
            size_bytes += disk.size(path)
            files += 1
        except NoSuchFile:
            continue
    return QuarantineSize(files, size_bytes)


def drop_quarantines(disk: Disk, directories: Iterable[str], before: Timestamp) -> QuarantineSize:
    """Remove what went to quarantine before this time; returns how much. For a thread: blocks on the disk."""
    files = size_bytes = 0
    for directory in directories:
        for path in _paths(disk, directory):
            with closing(disk.open(path, readonly=True)) as file:
                is_old = file.modified_ns() < before * MILLISECOND
                size = file.size()
            if is_old:
                disk.remove(path)
                files, size_bytes = files + 1, size_bytes + size
    return QuarantineSize(files, size_bytes)


def _paths(disk: Disk, directory: str) -> list[str]:
    aside = f"{directory}/{QUARANTINE}"
    if not disk.is_directory(aside):
        return []
    return [f"{aside}/{name}" for name in disk.listdir(aside)]
