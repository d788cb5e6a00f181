"""A disk of this machine on which nothing is synced.

A new node syncs some forty times before it serves, in order: most of what a start would take. What a test
writes need not outlive the machine; the kernel keeps it while it runs, also if the node is killed.
"""

import os

from penstock.storage.disk import PosixDisk
from penstock.storage.disk.port import translated
from penstock.storage.disk.posix import PosixFile


class UnsyncedFile(PosixFile):
    """A file that is never forced to the device."""

    __slots__ = ()

    def sync(self) -> None:
        """Do nothing."""


class UnsyncedDisk(PosixDisk):
    """Files and directories of this machine, left to the kernel."""

    file_type = UnsyncedFile

    def make_directory(self, path: str) -> None:
        with translated("make_directory", path):
            os.makedirs(os.path.join(self.root, path), exist_ok=True)

    def sync_directory(self, path: str) -> None:
        """Do nothing."""
