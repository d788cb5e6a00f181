"""Metadata snapshots in an encrypted directory: none in clear, none of another place, and none lost."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from random import Random  # noqa: TID251  seeded
from uuid import UUID

import pytest

from penstock.broker.cluster.quorum import QuorumOptions, QuorumStore
from penstock.broker.cluster.raft_recovery import recover
from penstock.broker.cluster.raft_snapshots import SnapshotManager
from penstock.broker.cluster.raft_storage import (
    RaftStorage,
    SnapshotSeal,
    encode_snapshot,
    load_newest,
    read_snapshot,
    rewrap_snapshots,
    seal_plain_snapshots,
    snapshot_keys,
    write_snapshot,
)
from penstock.core.metadata import EMPTY_IMAGE, ClusterIdSet, replay
from penstock.core.model import CorruptionError, Instant, Offset, TopicId
from penstock.core.raft import Configuration, Index, SendSnapshotChunk, SnapshotMeta, Term
from penstock.core.raft.messages import RaftMessage, SnapshotChunk
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk, PowerCut
from penstock.storage.log import PartitionLog
from penstock.storage.sealing import KeyUnavailable, KeyVault, MasterKeys
from tests.property.raft.raft_arena import member_of
from tests.support.manual_runtime import HandTimers, InlineSpawn
from tests.unit.broker.cluster.raft.test_raft_recovery import InstantSyncs

A, B = member_of(1), member_of(2)
DIRECTORY_ID = UUID(int=77)
SECRET_WORD = b"hunter2-hunter2-hunter2"
FACT = ClusterIdSet(SECRET_WORD.decode())
OLD, NEW = {"old": b"o" * 32}, {"new": b"n" * 32}


def meta_of(index: int) -> SnapshotMeta:
    return SnapshotMeta(Index(index), Term(5), Configuration((A, B)))


def content_of(index: int) -> bytes:
    return encode_snapshot(meta_of(index), Offset(7), [FACT])


def path_of(index: int) -> str:
    return f"meta/raft/{index:020d}.snapshot"


class Keys:
    """A key service whose keys are given."""

    def __init__(self, keys: MasterKeys) -> None:
        self.keys = keys

    def load(self) -> MasterKeys:
        return self.keys

    def rotate(self, now_ms: int) -> MasterKeys:
        return self.keys


def vault_of(secrets: Mapping[str, bytes], current: str) -> KeyVault:
    keys = MasterKeys(secrets, current)
    return KeyVault(Keys(keys), keys, os.urandom)


def seal_of(secrets: Mapping[str, bytes] = OLD, current: str = "old") -> SnapshotSeal:
    return SnapshotSeal(vault_of(secrets, current), DIRECTORY_ID)


def blank_disk() -> CrashableDisk:
    disk = CrashableDisk()
    for directory in ("meta", "meta/raft"):
        disk.make_directory(directory)
        disk.sync_directory("")
        disk.sync_directory("meta")
    return disk


def bytes_on(disk: CrashableDisk) -> bytes:
    return b"".join(disk.read(path) for path in disk.files())


def test_what_is_in_a_snapshot_does_not_stand_on_disk_and_other_members_get_it_as_it_was() -> None:
    disk, seal = blank_disk(), seal_of()

    write_snapshot(disk, Index(9), content_of(9), seal)

    assert SECRET_WORD not in bytes_on(disk)
    assert read_snapshot(disk, meta_of(9), seal) == content_of(9)
    found = load_newest(disk, seal)
    assert found is not None
    assert found.image.cluster_id == FACT.cluster_id


def test_the_manager_takes_sends_and_verifies_sealed_snapshots() -> None:
    disk, timers = blank_disk(), HandTimers()
    log = PartitionLog.create(disk, "meta/raft/log", TopicId(UUID(int=1)))
    log.truncate_fully(Offset(9))
    store = RaftStorage(log, meta_of(9), Offset(7), 100)
    store.seal = seal_of()
    damaged: list[None] = []
    spawn = InlineSpawn(timers)
    manager = SnapshotManager(spawn, disk, store, 1, Offset(7), lambda: damaged.append(None))
    sent: list[RaftMessage] = []

    manager.take(meta_of(10), Offset(8), replay(EMPTY_IMAGE, [FACT]))
    timers.run()
    effect = SendSnapshotChunk(B, Term(6), meta_of(10), 0, 1_000)
    manager.send(effect, lambda _, message: sent.append(message))
    timers.run()
    manager.verify()
    timers.run()

    assert SECRET_WORD not in disk.read(path_of(10))
    (chunk,) = sent
    assert isinstance(chunk, SnapshotChunk)
    assert SECRET_WORD in chunk.content
    assert damaged == []

    disk.flip_bit(path_of(10), 8 * 60)
    manager.verify()
    timers.run()
    assert damaged == [None]


@pytest.mark.parametrize("position", [0, 5, 12, 20, 24, 40, -1])
def test_a_changed_bit_anywhere_is_damage_and_the_older_snapshot_is_used(position: int) -> None:
    disk, seal = blank_disk(), seal_of()
    write_snapshot(disk, Index(8), content_of(8), seal)
    write_snapshot(disk, Index(9), content_of(9), seal)
    disk.flip_bit(path_of(9), 8 * (position % len(disk.read(path_of(9)))))

    with pytest.raises(CorruptionError):
        read_snapshot(disk, meta_of(9), seal)
    found = load_newest(disk, seal)

    assert found is not None
    assert found.meta.index == 8


def test_what_only_does_not_open_is_kept_as_the_key_may_be_the_wrong_one() -> None:
    disk, wrong = blank_disk(), seal_of({"old": b"x" * 32})
    write_snapshot(disk, Index(8), content_of(8), seal_of())
    before = disk.read(path_of(8))

    assert load_newest(disk, wrong) is None

    assert disk.read(path_of(8) + ".unopened") == before


def test_a_snapshot_in_clear_or_of_another_place_counts_for_nothing() -> None:
    disk, seal = blank_disk(), seal_of()
    other = SnapshotSeal(seal.vault, UUID(int=78))
    write_snapshot(disk, Index(7), content_of(7), seal)
    sealed = disk.read(path_of(7))

    for content in (content_of(9), other.close(Index(9), content_of(9)), sealed):
        write_snapshot(disk, Index(9), content)
        with pytest.raises(CorruptionError):
            read_snapshot(disk, meta_of(9), seal)
        found = load_newest(disk, seal)
        assert found is not None
        assert found.meta.index == 7


def test_a_missing_key_is_no_damage() -> None:
    disk = blank_disk()
    write_snapshot(disk, Index(9), content_of(9), seal_of())
    before = disk.read(path_of(9))

    with pytest.raises(KeyUnavailable, match="the master key 'old' is not there"):
        load_newest(disk, seal_of(NEW, "new"))

    assert disk.read(path_of(9)) == before


def cut_everywhere(disk: CrashableDisk, work: Callable[[CrashableDisk], object]) -> Iterator[CrashableDisk]:
    """What the disk may look like after a power cut during each operation of some work."""
    whole = disk.copy()
    before = whole.operations
    work(whole)
    operations = whole.operations - before
    assert operations
    for operation in range(1, operations + 1):
        for seed in range(4):
            victim = disk.copy()
            victim.cut_power_at(operation)
            with suppress(PowerCut):
                work(victim)
            yield victim.crash(Random(seed))


def test_switching_encryption_on_encrypts_what_was_in_clear_whenever_the_power_is_cut() -> None:
    disk, seal = blank_disk(), seal_of()
    for index in (8, 9):
        write_snapshot(disk, Index(index), content_of(index))

    for victim in cut_everywhere(disk, lambda disk: seal_plain_snapshots(disk, seal)):
        seal_plain_snapshots(victim, seal)
        found = load_newest(victim, seal)
        assert found is not None
        assert found.meta.index == 9
        assert SECRET_WORD not in bytes_on(victim)
        assert read_snapshot(victim, meta_of(8), seal) == content_of(8)


def test_a_rotation_re_encrypts_snapshots_whenever_the_power_is_cut() -> None:
    disk, both = blank_disk(), seal_of({**OLD, **NEW}, "new")
    for index in (8, 9):
        write_snapshot(disk, Index(index), content_of(index), seal_of())
    assert snapshot_keys(disk) == ["old", "old"]

    for victim in cut_everywhere(disk, lambda disk: rewrap_snapshots(disk, both)):
        for index in (8, 9):
            assert read_snapshot(victim, meta_of(index), both) == content_of(index)
        rewrap_snapshots(victim, both)
        assert snapshot_keys(victim) == ["new", "new"]
        assert read_snapshot(victim, meta_of(9), seal_of(NEW, "new")) == content_of(9)


class HeldByWriter:
    """A lock that is free when somebody else has written the first snapshot, under the former key."""

    def __init__(self, disk: CrashableDisk) -> None:
        self._disk = disk

    def __enter__(self) -> None:
        if not snapshot_keys(self._disk):
            write_snapshot(self._disk, Index(9), content_of(9), seal_of())

    def __exit__(self, *_: object) -> None:
        """Free again."""


def test_a_rotation_re_encrypts_the_first_snapshot_too_if_that_is_being_written() -> None:
    disk, both = blank_disk(), seal_of({**OLD, **NEW}, "new")
    both.lock = HeldByWriter(disk)  # type: ignore[assignment]

    assert rewrap_snapshots(disk, both) == 1

    assert snapshot_keys(disk) == ["new"]


def test_a_snapshot_that_does_not_open_does_not_keep_a_rotation_from_the_others() -> None:
    disk, both = blank_disk(), seal_of({**OLD, **NEW}, "new")
    write_snapshot(disk, Index(8), content_of(8), seal_of())
    write_snapshot(disk, Index(9), content_of(9), seal_of())
    disk.flip_bit(path_of(8), 8 * 50)

    assert rewrap_snapshots(disk, both) == 1
    assert snapshot_keys(disk) == ["new"]


def store_of(disk: CrashableDisk, secrets: Mapping[str, bytes] | None, *, plain: bool = False) -> QuorumStore:
    commit = GroupCommit(InstantSyncs())
    if secrets is None:
        return QuorumStore(disk, disk, commit)
    vault = vault_of(secrets, next(iter(secrets)))
    return QuorumStore(disk, disk, commit, None, vault, DIRECTORY_ID, plain)


def start(place: QuorumStore) -> None:
    found = recover(place, Configuration((A,)), QuorumOptions(), lambda: Instant(0), joined=False)
    assert found.store.snapshot.configuration == Configuration((A,))
    found.store.log.close()


def test_a_quorum_is_founded_encrypted_whenever_the_power_is_cut() -> None:
    disk = CrashableDisk()
    disk.make_directory("meta")
    disk.sync_directory("")

    for victim in cut_everywhere(disk, lambda disk: start(store_of(disk, OLD))):
        start(store_of(victim, OLD))
        assert snapshot_keys(victim) == ["old"]


def test_a_quorum_that_was_in_clear_starts_encrypted_and_later_takes_nothing_in_clear() -> None:
    disk = CrashableDisk()
    disk.make_directory("meta")
    start(store_of(disk, None))
    plain = disk.copy()

    start(store_of(disk, OLD, plain=True))

    assert snapshot_keys(disk) == ["old"]
    start(store_of(disk, OLD))
    with pytest.raises(CorruptionError, match="keys is missing, and the metadata is encrypted"):
        start(store_of(plain, OLD))
