"""Bytes that recovery cuts off a log and does not throw away."""

from penstock.storage.disk import DiskFull, File
from penstock.storage.log.names import QUARANTINE
from penstock.storage.log.segment.walk import SCAN_BYTES
from penstock.storage.log.state import LogState

# Behind the offset that the bytes would have had, in the quarantine directory.
CUT = ".cut"


def keep_aside(state: LogState, file: File, position: int, name: str) -> str | None:
    """Copy a file from `position` on into the quarantine, durably; answers where it is.

    None if the disk has no room: a log that cannot be opened would help nobody.
    """
    aside = f"{state.directory}/{QUARANTINE}"
    path = _free_path(state, f"{aside}/{name}")
    state.disk.make_directory(aside)
    copy = state.disk.open(path, create=True)
    try:
        for at in range(position, file.size(), SCAN_BYTES):
            copy.append(file.pread(at, SCAN_BYTES))
        copy.sync()
    except DiskFull:
        copy.close()
        state.disk.remove(path)
        return None
    copy.close()
    state.disk.sync_directory(aside)
    state.disk.sync_directory(state.directory)
    return path


def _free_path(state: LogState, path: str) -> str:
    """An earlier start may have kept something under this name."""
    number, free = 1, path
    while state.disk.exists(free):
        number += 1
        free = f"{path}.{number}"
    return free
