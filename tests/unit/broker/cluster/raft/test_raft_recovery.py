from collections.abc import Sequence

import pytest

from penstock.broker.cluster import MetadataLost, QuorumOptions, QuorumStore
from penstock.broker.cluster.raft_codec import encode_facts
from penstock.broker.cluster.raft_host import RecoveredQuorum, recover
from penstock.broker.cluster.raft_storage import (
    encode_snapshot,
    load_newest,
    read_hard_state,
    write_hard_state,
    write_snapshot,
)
from penstock.core.metadata import ClusterIdSet
from penstock.core.model import CorruptionError, Offset, Timestamp
from penstock.core.raft import (
    BLANK_BALLOT,
    EMPTY_CONFIGURATION,
    Configuration,
    ConfigurationAt,
    Entry,
    HardState,
    Index,
    SnapshotMeta,
    Term,
)
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk
from tests.property.raft.raft_arena import member_of

A, B = member_of(1), member_of(2)
FACT = ClusterIdSet("AAAAAAAAAAAAAAAAAAAAAQ")
NOW = Timestamp(0)


class InstantSyncs:
    def sync(self, files: Sequence[object], done: object) -> None:
        """Never calls back: these tests close the log, which syncs."""


def open_again(
    disk: CrashableDisk, founders: Configuration = EMPTY_CONFIGURATION, *, joined: bool = False
) -> RecoveredQuorum:
    place = QuorumStore(disk, disk, GroupCommit(InstantSyncs()))
    return recover(place, founders, QuorumOptions(), lambda: 0, joined=joined)


def new_disk() -> CrashableDisk:
    disk = CrashableDisk()
    disk.make_directory("meta")
    return disk


def facts_entry(index: int, term: int, end: int) -> Entry:
    return Entry(Index(index), Term(term), encode_facts(Offset(end), [FACT]))


def test_a_new_directory_begins_with_its_first_voters_and_keeps_them() -> None:
    disk = new_disk()

    first = open_again(disk, Configuration((A, B)))
    first.store.log.close()
    again = open_again(disk, Configuration((B,)))

    assert first.store.snapshot == again.store.snapshot
    assert again.store.snapshot.configuration == Configuration((A, B))
    assert again.recovered.hard_state == BLANK_BALLOT
    assert (again.store.first, again.store.last, again.store.end) == (1, 0, 0)


def test_entries_terms_members_and_ends_are_found_again() -> None:
    disk = new_disk()
    found = open_again(disk)
    entries = [
        Entry(Index(1), Term(2), None),
        facts_entry(2, 2, 1),
        Entry(Index(3), Term(4), Configuration((A,))),
        facts_entry(4, 4, 2),
    ]
    found.store.append(entries, NOW)
    found.store.log.close()

    again = open_again(disk)

    assert list(again.store.entries(Index(1), 1 << 20)) == entries
    assert [again.store.term_at(Index(index)) for index in range(6)] == [0, 2, 2, 4, 4, None]
    assert again.store.end == 2
    assert again.recovered.configurations == (ConfigurationAt(Index(3), Configuration((A,))),)


def test_a_cut_takes_entries_and_facts_away_and_others_take_their_place() -> None:
    disk = new_disk()
    found = open_again(disk)
    found.store.append([facts_entry(1, 1, 1), facts_entry(2, 1, 2), facts_entry(3, 1, 3)], NOW)

    found.store.truncate(Index(2))
    assert (found.store.last, found.store.end) == (1, 1)
    found.store.append([Entry(Index(2), Term(3), None)], NOW)
    found.store.log.close()

    again = open_again(disk)
    assert [again.store.term_at(Index(index)) for index in (1, 2, 3)] == [1, 3, None]
    assert again.store.end == 1


def test_a_snapshot_from_a_leader_replaces_the_log_even_if_the_power_goes_in_between() -> None:
    disk = new_disk()
    found = open_again(disk)
    found.store.append([facts_entry(1, 1, 1), facts_entry(2, 1, 2)], NOW)
    found.store.log.close()
    meta = SnapshotMeta(Index(9), Term(5), Configuration((A,)))

    # The snapshot is durable; the log was not cut.
    write_snapshot(disk, meta.index, encode_snapshot(meta, Offset(7), [FACT]))
    again = open_again(disk)

    assert (again.store.first, again.store.last, again.store.end) == (10, 9, 7)
    assert again.store.term_at(Index(9)) == 5
    assert again.image.cluster_id == FACT.cluster_id


def test_a_snapshot_of_our_own_keeps_the_log_behind_it() -> None:
    disk = new_disk()
    found = open_again(disk)
    found.store.append([facts_entry(1, 1, 1), facts_entry(2, 1, 2), facts_entry(3, 1, 3)], NOW)
    meta = SnapshotMeta(Index(2), Term(1), Configuration((A,)))
    write_snapshot(disk, meta.index, encode_snapshot(meta, Offset(2), [FACT]))
    found.store.compact(meta, Offset(2))
    found.store.log.close()

    again = open_again(disk)

    assert (again.store.last, again.store.end, again.store.snapshot) == (3, 3, meta)


def test_a_damaged_snapshot_gives_way_to_the_one_before_it() -> None:
    disk = new_disk()
    open_again(disk, Configuration((A,))).store.log.close()
    meta = SnapshotMeta(Index(9), Term(5), Configuration((B,)))
    content = bytearray(encode_snapshot(meta, Offset(7), [FACT]))
    content[30] ^= 1
    write_snapshot(disk, meta.index, bytes(content))

    newest = load_newest(disk)

    assert newest is not None
    assert newest.meta.configuration == Configuration((A,))


def test_only_two_snapshots_are_kept() -> None:
    disk = new_disk()
    open_again(disk).store.log.close()
    for index in (3, 6, 9):
        meta = SnapshotMeta(Index(index), Term(1), EMPTY_CONFIGURATION)
        write_snapshot(disk, meta.index, encode_snapshot(meta, Offset(0), []))

    kept = [name for name in disk.listdir("meta/raft") if name.endswith(".snapshot")]

    assert kept == [f"{6:020d}.snapshot", f"{9:020d}.snapshot"]


def test_a_directory_that_has_lost_its_log_is_refused() -> None:
    disk = new_disk()
    with pytest.raises(MetadataLost):
        open_again(disk, joined=True)

    disk = new_disk()
    open_again(disk).store.log.close()
    write_hard_state(disk, HardState(Term(3), None))
    disk.remove_tree("meta/raft/log")
    with pytest.raises(MetadataLost):
        open_again(disk)


@pytest.mark.parametrize("ballot", [HardState(Term(3), None), HardState(Term(1 << 40), B)])
def test_a_hard_state_is_read_as_it_was_written(ballot: HardState) -> None:
    disk = new_disk()
    disk.make_directory("meta/raft")
    assert read_hard_state(disk) is None

    write_hard_state(disk, ballot)

    assert read_hard_state(disk) == ballot


def test_a_hard_state_that_cannot_be_read_is_not_guessed() -> None:
    disk = new_disk()
    disk.make_directory("meta/raft")
    write_hard_state(disk, HardState(Term(3), B))
    disk.open("meta/raft/ballot").pwrite(8, b"9")

    with pytest.raises(CorruptionError):
        read_hard_state(disk)
