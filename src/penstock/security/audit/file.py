"""The files of the audit log: one that grows, and older ones beside it.

    audit.log          the newest; nobody but its owner may read it
    audit.log.1        what it was before it became too large
    audit.log.2 …      older ones, up to a number; the oldest is deleted for the next

Files are replaced by renaming, so that whoever reads one sees whole lines. A batch that could be written in
part only is cut off again: no half line is followed by another. Everything here blocks; it runs off the loop.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.core.model import PenstockError

NAME = "audit.log"
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
# The longest line has some 80 KB, where every name in it is as long as may be and escaped.
READ_BYTES_MAX = 128 << 10


class AuditUnusable(PenstockError):
    """The audit log cannot be written or read; says where, and why."""


class AuditFile:
    """Appends lines to the newest file, and rotates it by its size. Used by one thread at a time."""

    def __init__(self, directory: str, file_bytes_max: int, files_max: int) -> None:
        self._directory = Path(directory)
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._descriptor = -1
        self._size = 0

    @property
    def path(self) -> Path:
        return self._directory / NAME

    def prepare(self) -> None:
        """Open the newest file, or raise AuditUnusable."""
        try:
            self._open()
        except OSError as error:
            raise AuditUnusable(f"cannot write the audit log {self.path}: {error.strerror}") from None

    def write(self, lines: bytes) -> None:
        """Append whole lines, all or none, or raise AuditUnusable."""
        try:
            self._write(lines)
        except OSError as error:
            raise AuditUnusable(error.strerror or str(error)) from None

    def _write(self, lines: bytes) -> None:
        if self._descriptor >= 0 and not self._is_current():
            # Somebody has moved or removed it.
            self.close()
        if self._descriptor < 0:
            self._open()
        if self._size and self._size + len(lines) > self._file_bytes_max:
            self._rotate()
        view, before = memoryview(lines), self._size
        try:
            while view:
                count = os.write(self._descriptor, view)
                self._size += count
                view = view[count:]
        except OSError:
            os.ftruncate(self._descriptor, before)
            self._size = before
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        # Not through a link that somebody else may have put there.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, FILE_MODE)
        found = os.fstat(descriptor)
        if stat.S_IMODE(found.st_mode) != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
        self._descriptor, self._size = descriptor, found.st_size
        self._end_line()

    def _end_line(self) -> None:
        """What a crash has left of a line stays, and does not become part of the next one."""
        if self._size:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    self._size += os.write(self._descriptor, b"\n")

    def _is_current(self) -> bool:
        ours = os.fstat(self._descriptor)
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files_max - 1, 0, -1):
            older = self._numbered(number)
            newer = self.path if number == 1 else self._numbered(number - 1)
            if newer.exists():
                os.replace(newer, older)
        if self._files_max == 1:
            self.path.unlink()
        for number, spare in _numbered_files(str(self._directory)):
            if number >= self._files_max:
                # There were more of them once.
                spare.unlink()
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._directory / f"{NAME}.{number}"


def audit_files(directory: str) -> list[Path]:
    """The files of an audit log, the oldest first."""
    return [path for _, path in _numbered_files(directory)]


def _numbered_files(directory: str) -> list[tuple[int, Path]]:
    found: list[tuple[int, Path]] = []
    for path in Path(directory).glob(f"{NAME}*"):
        rest = path.name.removeprefix(NAME)
        if not rest or (rest[0] == "." and rest[1:].isdecimal()):
            found.append((int(rest[1:] or 0), path))
    return sorted(found, reverse=True)


def read_lines(directory: str) -> Iterator[bytes]:
    """Every line of an audit log, the oldest first; AuditUnusable if there is none to read."""
    paths = audit_files(directory)
    if not paths:
        raise AuditUnusable(f"there is no audit log in {directory}")
    for path in paths:
        try:
            with path.open("rb") as file:
                while line := file.readline(READ_BYTES_MAX):
                    yield line
        except FileNotFoundError:
            # Rotated away meanwhile.
            continue
        except OSError as error:
            raise AuditUnusable(f"{path}: {error.strerror}") from None
