"""The disk behind a port (`port`), with a real form and two that misbehave on purpose.

`PosixDisk` (`posix`) is what a broker runs on. `CrashableDisk` (`memory`) knows what a
power cut would leave of it: data that was not synced is lost in whole or in part, writes
are torn, names that were not synced come and go. `FailingDisk` (`failing`) wraps either and
fails chosen operations: no space, an I/O error, a sync that failed for good.

An append that returned is in the page cache, a sync that returned is on the device, and a
name is durable when its directory was synced. A sync that failed is never repeated, because
the kernel drops the pages it could not write and calls the next sync a success.

Left out: preallocation (Python offers only the form that changes the size), direct I/O,
and more than one filesystem per disk.
"""

from penstock.storage.disk.failing import FailingDisk, FailingFile, FailureRule
from penstock.storage.disk.memory import SECTOR_BYTES, CrashableDisk, CrashableFile, PowerCut, RandomSource
from penstock.storage.disk.port import (
    Buffer,
    DirectoryLocked,
    Disk,
    DiskFailed,
    DiskFull,
    DiskSpace,
    File,
    FileAlreadyExists,
    Lock,
    NoSuchFile,
)
from penstock.storage.disk.posix import DetachedReader, PosixDisk, warmer

__all__ = [
    "Buffer",
    "Disk",
    "File",
    "Lock",
    "PosixDisk",
    "DetachedReader",
    "warmer",
    "CrashableDisk",
    "CrashableFile",
    "PowerCut",
    "FailingDisk",
    "FailingFile",
    "FailureRule",
    "RandomSource",
    "SECTOR_BYTES",
    "DiskFailed",
    "DiskFull",
    "DiskSpace",
    "NoSuchFile",
    "FileAlreadyExists",
    "DirectoryLocked",
]
