"""A data directory that is encrypted: whose keys fit it, and when nothing in clear counts any more."""

import os
import random
from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

import pytest

from penstock.core.model import PartitionIndex, TopicId
from penstock.storage.data_directory import DataDirectory, DirectoryDamaged, read_record
from penstock.storage.disk import CrashableDisk, PowerCut
from penstock.storage.journal import JournalRun
from penstock.storage.log import LogOptions, PartitionLog
from penstock.storage.sealing import KeyUnavailable, KeyVault, MasterKeys

DIRECTORY, OTHER = UUID(int=1), UUID(int=2)
RUN = JournalRun(5, 1)
TOPIC = TopicId(UUID(int=7))
SEAL = "meta/encryption"
OLD, NEW, WRONG = {"old": b"o" * 32}, {"new": b"n" * 32}, {"old": b"x" * 32}


class Keys:
    """A key service whose keys never change."""

    def __init__(self, keys: MasterKeys) -> None:
        self.keys = keys

    def load(self) -> MasterKeys:
        return self.keys

    def rotate(self, now_ms: int) -> MasterKeys:
        return self.keys


def vault_of(secrets: Mapping[str, bytes], current: str | None = None) -> KeyVault:
    keys = MasterKeys(secrets, current or next(iter(secrets)))
    return KeyVault(Keys(keys), keys, os.urandom)


def start(disk: CrashableDisk, vault: KeyVault | None, *, is_quorum_sealed: bool = True) -> DataDirectory:
    """As a node starts."""
    directory = DataDirectory.open(disk, DIRECTORY)
    try:
        directory.unlock(vault)
        directory.note_journal(RUN)
        if vault is not None and is_quorum_sealed:
            directory.quorum_sealed(vault)
    except BaseException:
        directory.close()
        raise
    return directory


def stop(disk: CrashableDisk, vault: KeyVault | None) -> None:
    start(disk, vault).close()


def test_a_directory_belongs_to_its_keys_from_then_on() -> None:
    disk = CrashableDisk()
    stop(disk, vault_of(OLD))

    stop(disk, vault_of(OLD))
    stop(disk, vault_of({**NEW, **OLD}, "new"))
    with pytest.raises(KeyUnavailable, match="the master key 'old' is not there"):
        stop(disk, vault_of(NEW))
    with pytest.raises(
        KeyUnavailable, match=r"does not fit the data directory: .* under the master key 'old'"
    ):
        stop(disk, vault_of(WRONG))
    with pytest.raises(KeyUnavailable, match="is encrypted, and no keys are configured"):
        stop(disk, None)


def test_a_version_that_knows_no_encryption_is_kept_away() -> None:
    disk = CrashableDisk()
    stop(disk, None)
    assert read_record(disk, "meta", "format") == "3"

    stop(disk, vault_of(OLD))

    assert read_record(disk, "meta", "format") == "4"


def test_metadata_in_clear_counts_until_it_is_encrypted_and_never_again() -> None:
    disk = CrashableDisk()
    stop(disk, None)
    first = start(disk, vault_of(OLD), is_quorum_sealed=False)
    assert first.may_quorum_be_plain
    first.close()

    again = start(disk, vault_of(OLD))
    again.close()
    third = start(disk, vault_of(OLD), is_quorum_sealed=False)

    assert not again.may_quorum_be_plain
    assert not third.may_quorum_be_plain


def partition(disk: CrashableDisk, index: int, *, has_table: bool) -> PartitionLog:
    """A log as a node makes it with keys, or without."""
    disk.make_directory("logs")
    vault = vault_of(OLD).of(TOPIC, PartitionIndex(index)) if has_table else None
    return PartitionLog.create(disk, f"logs/orders/{index}", TOPIC, LogOptions(), vault=vault)


def test_in_a_new_directory_every_log_has_a_key_table_from_the_beginning() -> None:
    disk, first, second = CrashableDisk(), vault_of(OLD), vault_of(OLD)
    stop(disk, first)
    stop(disk, second)

    assert first.has_all_tables
    assert second.has_all_tables


def test_a_directory_that_was_in_use_says_so_when_every_log_has_a_key_table() -> None:
    disk, vault = CrashableDisk(), vault_of({**OLD, **NEW}, "old")
    stop(disk, None)
    partition(disk, 0, has_table=True).close()
    partition(disk, 1, has_table=False).close()
    directory = start(disk, vault)
    directory.note_tables(vault, disk)
    while_one_lacks = vault.has_all_tables

    disk.remove_tree("logs/orders/1")
    # A creation that was interrupted is no log.
    disk.make_directory("logs/orders/2")
    directory.note_tables(vault, disk)
    assert (while_one_lacks, vault.has_all_tables) == (False, True)
    directory.close()

    after = vault_of({**OLD, **NEW}, "new")
    again = start(disk, after)
    assert again.rewrap(after)
    again.close()
    third = vault_of(NEW)
    stop(disk, third)
    assert after.has_all_tables
    assert third.has_all_tables


def test_taking_the_seal_away_does_not_make_what_is_in_clear_count() -> None:
    disk = CrashableDisk()
    stop(disk, vault_of(OLD))
    disk.lose(SEAL)

    with pytest.raises(DirectoryDamaged, match="encryption is missing, and the data directory is encrypted"):
        stop(disk, vault_of(OLD))


def test_the_seal_of_another_directory_does_not_fit() -> None:
    disk, other = CrashableDisk(), CrashableDisk()
    stop(disk, vault_of(OLD))
    DataDirectory.open(other, OTHER).close()
    stop(other, vault_of(OLD))
    file = disk.open(SEAL)
    file.truncate(0)
    file.append(other.read(SEAL))
    file.close()

    with pytest.raises(DirectoryDamaged, match="is that of another directory"):
        stop(disk, vault_of(OLD))


def test_after_a_rotation_the_old_key_is_not_needed() -> None:
    disk = CrashableDisk()
    directory = start(disk, vault_of(OLD))
    rotated = vault_of({**OLD, **NEW}, "new")
    assert directory.master_key() == "old"

    directory.rewrap(rotated)

    assert directory.master_key() == "new"
    operations = disk.operations
    directory.rewrap(rotated)
    assert disk.operations == operations
    directory.close()
    assert not start(disk, vault_of(NEW), is_quorum_sealed=False).may_quorum_be_plain


@pytest.mark.parametrize("has_been_in_clear", [False, True])
def test_a_power_cut_at_any_moment_leaves_a_directory_that_starts(has_been_in_clear: bool) -> None:
    def before() -> CrashableDisk:
        disk = CrashableDisk()
        if has_been_in_clear:
            stop(disk, None)
        return disk

    def work(disk: CrashableDisk) -> None:
        directory = start(disk, vault_of(OLD))
        directory.rewrap(vault_of({**OLD, **NEW}, "new"))
        directory.close()

    whole = before()
    done = whole.operations
    work(whole)
    for operation in range(1, whole.operations - done + 1):
        for seed in range(5):
            disk = before()
            disk.cut_power_at(operation)
            with suppress(PowerCut):
                work(disk)

            survivor = disk.crash(random.Random(seed))
            start(survivor, vault_of({**OLD, **NEW}, "new")).close()
            assert read_record(survivor, "meta", "format") == "4"
