"""Snapshots that are damaged: nobody sends them, and nobody takes them."""

from uuid import UUID

import pytest

from penstock.broker.cluster.quorum import QuorumFailed
from penstock.broker.cluster.raft_snapshots import SnapshotManager
from penstock.broker.cluster.raft_storage import (
    MetadataSnapshot,
    RaftStorage,
    encode_snapshot,
    load_newest,
    write_snapshot,
)
from penstock.core.metadata import (
    EMPTY_IMAGE,
    METADATA_VERSION,
    ClusterIdSet,
    FeatureLevelSet,
    LevelTooHigh,
    replay,
)
from penstock.core.model import Offset, TopicId
from penstock.core.raft import (
    Configuration,
    Index,
    InstallSnapshot,
    SendSnapshotChunk,
    SnapshotMeta,
    StoreSnapshotChunk,
    Term,
)
from penstock.core.raft.messages import RaftMessage, SnapshotChunk
from penstock.core.raft.types import Member
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import PartitionLog
from tests.property.raft.raft_arena import member_of
from tests.support.manual_runtime import HandTimers, InlineSpawn

A, B = member_of(1), member_of(2)
FACT = ClusterIdSet("AAAAAAAAAAAAAAAAAAAAAQ")
META = SnapshotMeta(Index(9), Term(5), Configuration((A, B)))
CONTENT = encode_snapshot(META, Offset(7), [FACT])
PATH = f"meta/raft/{9:020d}.snapshot"


class Stage:
    """A snapshot manager whose newest snapshot is at index 9."""

    def __init__(self) -> None:
        self.disk = CrashableDisk()
        for directory in ("meta", "meta/raft"):
            self.disk.make_directory(directory)
        log = PartitionLog.create(self.disk, "meta/raft/log", TopicId(UUID(int=1)))
        log.truncate_fully(Offset(META.index))
        write_snapshot(self.disk, META.index, CONTENT)
        self.store = RaftStorage(log, META, Offset(7), 100)
        self.timers = HandTimers()
        self.damaged = 0
        self.sent: list[tuple[Member, RaftMessage]] = []
        self.manager = SnapshotManager(
            InlineSpawn(self.timers), self.disk, self.store, 1, Offset(7), self._on_damaged
        )

    def _on_damaged(self) -> None:
        self.damaged += 1

    def send(self, position: int, bytes_max: int = 20) -> None:
        effect = SendSnapshotChunk(B, Term(6), META, position, bytes_max)
        self.manager.send(effect, lambda to, message: self.sent.append((to, message)))
        self.timers.run()

    def receive(self, content: bytes) -> tuple[list[MetadataSnapshot], int]:
        installed: list[MetadataSnapshot] = []
        rejected: list[None] = []
        self.manager.receive(StoreSnapshotChunk(META, 0, content))
        self.manager.install(InstallSnapshot(META), installed.append, lambda: rejected.append(None))
        self.timers.run()
        return installed, len(rejected)


def test_chunks_of_a_transfer_are_those_of_the_snapshot_that_was_verified() -> None:
    stage = Stage()

    stage.send(0)
    stage.disk.flip_bit(PATH, 8 * 30)
    stage.send(20, 1_000)

    chunks = [message for _, message in stage.sent if isinstance(message, SnapshotChunk)]
    assert b"".join(chunk.content for chunk in chunks) == CONTENT
    assert [chunk.is_last for chunk in chunks] == [False, True]
    assert stage.damaged == 0


@pytest.mark.parametrize("damage", ["bit", "cut", "gone"])
def test_a_damaged_snapshot_is_not_sent_and_a_new_one_takes_its_place(damage: str) -> None:
    stage = Stage()
    match damage:
        case "bit":
            stage.disk.flip_bit(PATH, 8 * 30)
        case "cut":
            stage.disk.cut_short(PATH, 40)
        case _:
            stage.disk.remove(PATH)

    stage.send(0)

    assert stage.sent == []
    assert stage.damaged == 1
    assert stage.manager.is_due(Offset(7), 1_000)

    newer = SnapshotMeta(Index(9), Term(5), Configuration((A, B)))
    stage.manager.take(newer, Offset(7), replay(EMPTY_IMAGE, [FACT]))
    stage.timers.run()
    stage.send(0, 1_000)

    assert not stage.manager.is_due(Offset(7), 1_000)
    assert len(stage.sent) == 1
    found = load_newest(stage.disk)
    assert found is not None
    assert found.image.cluster_id == FACT.cluster_id


def test_a_snapshot_that_is_found_damaged_in_the_background_is_replaced() -> None:
    stage = Stage()

    stage.manager.verify()
    stage.timers.run()
    assert stage.damaged == 0

    stage.disk.flip_bit(PATH, 8 * 30)
    stage.manager.verify()
    stage.timers.run()
    assert stage.damaged == 1
    assert stage.manager.is_due(Offset(7), 1_000)


def test_a_snapshot_that_arrives_damaged_is_dropped() -> None:
    stage = Stage()
    rotten = bytearray(CONTENT)
    rotten[40] ^= 1
    other = encode_snapshot(SnapshotMeta(Index(8), Term(5), META.configuration), Offset(7), [FACT])

    assert stage.receive(bytes(rotten)) == ([], 1)
    assert stage.receive(other) == ([], 1)
    installed, rejected = stage.receive(CONTENT)

    assert ([found.meta for found in installed], rejected) == ([META], 0)


def test_a_snapshot_of_a_newer_level_is_no_damage_and_stays() -> None:
    stage = Stage()
    newer = encode_snapshot(META, Offset(7), [FACT, FeatureLevelSet(METADATA_VERSION, 99)])
    write_snapshot(stage.disk, META.index, newer)

    with pytest.raises(LevelTooHigh, match=r"metadata\.version 99"):
        load_newest(stage.disk)

    assert stage.disk.exists(PATH)


def test_a_node_that_is_too_old_for_its_leaders_snapshot_says_so() -> None:
    newer = encode_snapshot(META, Offset(7), [FACT, FeatureLevelSet(METADATA_VERSION, 99)])

    with pytest.raises(QuorumFailed, match=r"metadata.version 99.* start the newer version"):
        Stage().receive(newer)
