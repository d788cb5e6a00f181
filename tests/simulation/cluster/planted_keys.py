"""Nodes that are wrong about their keys: faults of rotations, and of what is said about old master keys.

As in `planted_faults`, which runs them.
"""

import pytest

from penstock.broker.encryption import key_rotation
from penstock.broker.encryption.key_rotation import KeyRotation
from penstock.broker.encryption.keys_in_use import KeysInUse
from penstock.core.model import StorageError
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk
from penstock.storage.log.durability import Done
from penstock.storage.log.file_names import KEYS
from penstock.storage.log.keys import LogKeys

Patch = pytest.MonkeyPatch


def old_keys_are_not_needed_when_some_logs_are_done(patch: Patch) -> None:
    """A pass leaves out every other partition, and nobody looks at what is left on disk."""
    begin = KeyRotation._begin_pass

    def begin_with_some(self: KeyRotation) -> None:
        logs = self._all
        self._all = lambda: [one for one in logs() if one.name.partition % 2]
        begin(self)
        self._all = logs

    def current(disk: Disk, directory: DataDirectory) -> KeysInUse:
        name = directory.master_key(disk)
        return {} if name is None else {name: ["meta/encryption"]}

    patch.setattr(KeyRotation, "_begin_pass", begin_with_some)
    patch.setattr(key_rotation, "keys_in_use", current)


def key_tables_count_before_their_names_are_durable(patch: Patch) -> None:
    """A power cut brings back the table of before, whose master key may be gone; it knows fewer keys."""
    written = LogKeys._written

    def written_soon(
        self: LogKeys,
        version: int,
        temporary: str,
        master_key: str,
        done: Done | None,
        error: StorageError | None,
    ) -> None:
        if error is None and version == self._version and self._durability.stopped is None:
            self._disk.rename(temporary, f"{self._directory}/{KEYS}")
            self._named(version, master_key, done, None)
        else:
            written(self, version, temporary, master_key, done, error)

    patch.setattr(LogKeys, "_written", written_soon)


def nodes_that_have_just_started_say_that_they_need_no_old_key(patch: Patch) -> None:
    """What a crash has interrupted is forgotten: nothing is written again, and nothing is looked at."""

    def start(self: KeyRotation) -> None:
        self._is_started = self._has_looked = True
        self._in_use = {self._vault.keys.current: ["meta/encryption"]}

    patch.setattr(KeyRotation, "start", start)
