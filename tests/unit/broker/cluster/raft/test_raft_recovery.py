import errno
from collections.abc import Callable, Sequence
from itertools import count
from uuid import UUID

import pytest

from penstock.broker.cluster import MetadataLost, QuorumOptions, QuorumStore
from penstock.broker.cluster.raft_codec import encode_facts
from penstock.broker.cluster.raft_recovery import RecoveredQuorum, recover
from penstock.broker.cluster.raft_storage import (
    encode_snapshot,
    load_newest,
    read_hard_state,
    write_hard_state,
    write_snapshot,
)
from penstock.core.metadata import ClusterIdSet
from penstock.core.model import CorruptionError, Offset, PartitionIndex, Timestamp, TopicId
from penstock.core.raft import (
    BLANK_BALLOT,
    EMPTY_CONFIGURATION,
    Configuration,
    ConfigurationAt,
    Entry,
    HardState,
    Index,
    RecoveredState,
    SnapshotMeta,
    Term,
)
from penstock.storage.commit import GroupCommit, SyncableFile
from penstock.storage.data_directory import write_record
from penstock.storage.disk import CrashableDisk, DiskFull, FailingDisk, FailureRule
from penstock.storage.journal import CommitJournal, JournalOptions, JournalPlace
from penstock.storage.log import PartitionLog
from penstock.storage.log.files import read_file
from tests.property.raft.raft_arena import member_of
from tests.support.recorded_events import recorded_events

A, B = member_of(1), member_of(2)
FACT = ClusterIdSet("AAAAAAAAAAAAAAAAAAAAAQ")
NOW = Timestamp(0)
FOR_EVER = 1 << 40


class InstantSyncs:
    def sync(self, files: Sequence[object], done: object) -> None:
        """Never calls back: these tests close the log, which syncs."""


def place_on(disk: CrashableDisk) -> QuorumStore:
    return QuorumStore(disk, disk, GroupCommit(InstantSyncs()))


def open_again(
    disk: CrashableDisk, founders: Configuration = EMPTY_CONFIGURATION, *, joined: bool = False
) -> RecoveredQuorum:
    return recover(place_on(disk), founders, QuorumOptions(), lambda: 0, joined=joined)


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


@pytest.mark.parametrize(
    "ballot", [HardState(Term(3), None), HardState(Term(1 << 40), B), HardState(Term(9), B, Term(7))]
)
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


SEGMENT = "meta/raft/log/00000000000000000000.log"
TERM = Term(3)


def with_entries(disk: CrashableDisk, count: int = 5) -> None:
    """A directory that has voted and holds entries of one term, which no checkpoint covers."""
    found = open_again(disk, Configuration((A, B)))
    write_hard_state(disk, HardState(TERM, B))
    found.store.append([facts_entry(index, TERM, index) for index in range(1, count + 1)], NOW)
    found.store.log.abandon()


def doubt_in(found: RecoveredQuorum) -> Term | None:
    assert found.recovered.hard_state is not None
    return found.recovered.hard_state.doubt


def test_a_torn_write_at_the_end_of_the_log_leaves_no_doubt() -> None:
    disk = new_disk()
    with_entries(disk)
    disk.cut_short(SEGMENT, disk.size(SEGMENT) - 3)

    again = open_again(disk)

    assert again.store.last == 4
    assert doubt_in(again) is None


def test_a_flipped_bit_in_the_tail_puts_the_log_in_doubt_from_start_to_start() -> None:
    disk = new_disk()
    with_entries(disk)
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) * 3 // 5 + 40))

    with recorded_events() as seen:
        again = open_again(disk)
    again.store.log.close()
    third = open_again(disk)

    assert again.store.last == 3
    assert again.recovered == RecoveredState(HardState(TERM, B, doubt=TERM))
    assert doubt_in(third) == TERM
    (damaged,) = seen.named("quorum.log_damaged")
    assert damaged["last_index"] == 3


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_entries_that_are_missing_below_the_checkpoint_put_the_log_in_doubt(size: float) -> None:
    disk = new_disk()
    with_entries(disk)
    open_again(disk).store.log.close()
    whole = disk.size(SEGMENT)
    disk.cut_short(SEGMENT, int(whole * size))

    again = open_again(disk)

    assert again.store.last == (2 if size else 0)
    assert doubt_in(again) == TERM
    assert doubt_in(open_again(disk)) == TERM


def test_a_flipped_bit_below_the_checkpoint_cuts_the_log_in_front_of_it() -> None:
    disk = new_disk()
    with_entries(disk)
    open_again(disk).store.log.close()
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) * 3 // 5 + 40))

    again = open_again(disk)

    assert again.store.last == 3
    assert doubt_in(again) == TERM
    assert disk.exists("meta/raft/log/quarantine/00000000000000000000.log")
    # What replaces the lost entries is a log like any other.
    again.store.append([facts_entry(4, TERM, 4)], NOW)
    again.store.log.close()
    assert open_again(disk).store.last == 4


def test_damage_behind_the_last_readable_entry_is_cut_off_without_a_checkpoint() -> None:
    disk = new_disk()
    with_entries(disk)
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) * 4 // 5 + 40))
    disk.remove("meta/raft/log/checkpoint")

    again = open_again(disk)

    assert (again.store.last, doubt_in(again)) == (4, TERM)
    assert again.store.log.corruption == ()


def test_a_hole_between_entries_is_damage() -> None:
    disk = new_disk()
    with_entries(disk)
    batch_bytes = disk.size(SEGMENT) // 5
    # The fifth entry claims to be the sixth: offsets are not covered by a batch's CRC.
    disk.open(SEGMENT).pwrite(4 * batch_bytes, (5).to_bytes(8, "big"))
    disk.remove("meta/raft/log/checkpoint")

    again = open_again(disk)

    assert (again.store.last, again.store.log.end, doubt_in(again)) == (4, 4, TERM)


@pytest.mark.parametrize("position", [1, 3, 5])
@pytest.mark.parametrize("term", [1, 11])
@pytest.mark.parametrize("snapshot", [None, 1, 3])
def test_an_entry_of_another_term_is_damage(position: int, term: int, snapshot: int | None) -> None:
    disk = new_disk()
    with_entries(disk)
    batch_bytes = disk.size(SEGMENT) // 5
    if snapshot is not None:
        meta = SnapshotMeta(Index(snapshot), TERM, Configuration((A, B)))
        write_snapshot(disk, meta.index, encode_snapshot(meta, Offset(snapshot), [FACT]))
    # The leader epoch, by which the log knows the term, is not covered by a batch's CRC.
    disk.open(SEGMENT).pwrite((position - 1) * batch_bytes + 12, term.to_bytes(4, "big"))
    disk.remove("meta/raft/log/checkpoint")
    disk.remove("meta/raft/log/leader-epochs")

    again = open_again(disk)

    assert {entry.term for entry in again.store.entries(again.store.first, 1 << 20)} <= {TERM}
    assert again.store.last == 5 or doubt_in(again) == TERM


def test_damage_that_a_snapshot_covers_loses_nothing() -> None:
    disk = new_disk()
    options = QuorumOptions(segment_bytes=600)
    found = recover(place_on(disk), Configuration((A, B)), options, lambda: 0, joined=False)
    write_hard_state(disk, HardState(TERM, B))
    for index in range(1, 31):
        found.store.append([facts_entry(index, TERM, index)], NOW)
    meta = SnapshotMeta(Index(25), TERM, Configuration((A, B)))
    write_snapshot(disk, meta.index, encode_snapshot(meta, Offset(25), [FACT]))
    found.store.log.close()
    disk.flip_bit(SEGMENT, 8 * 70)

    again = recover(place_on(disk), EMPTY_CONFIGURATION, options, lambda: 0, joined=True)

    assert (again.store.last, again.store.end) == (30, 30)
    assert doubt_in(again) is None


@pytest.mark.parametrize("entries", [0, 5])
def test_a_missing_hard_state_is_a_lost_one(entries: int) -> None:
    disk = new_disk()
    if entries:
        with_entries(disk)
    else:
        open_again(disk, Configuration((A, B))).store.log.close()
    disk.remove("meta/raft/ballot")

    with recorded_events() as seen:
        again = open_again(disk)

    assert again.recovered.hard_state is None
    assert len(seen.named("quorum.hard_state_lost")) == 1


def test_a_damaged_hard_state_is_a_lost_one() -> None:
    disk = new_disk()
    with_entries(disk)
    disk.flip_bit("meta/raft/ballot", 60)

    assert open_again(disk).recovered.hard_state is None


@pytest.mark.parametrize("path", ["meta/raft/ballot", "meta/raft/doubt"])
def test_no_file_that_is_gone_makes_a_doubtful_voter_sure(path: str) -> None:
    disk = new_disk()
    with_entries(disk)
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) * 3 // 5 + 40))
    assert doubt_in(open_again(disk)) == TERM

    if disk.exists(path):
        disk.lose(path)
    hard_state = open_again(disk).recovered.hard_state

    assert hard_state is None or hard_state.doubt == TERM


@pytest.mark.parametrize("flipped", [False, True])
def test_a_doubt_that_an_earlier_version_stored_is_kept(flipped: bool) -> None:
    disk = new_disk()
    with_entries(disk)
    write_record(disk, "meta/raft", "doubt", "1")
    if flipped:
        disk.flip_bit("meta/raft/doubt", 50)

    # One that cannot be read is as of the last term.
    assert doubt_in(open_again(disk)) == (TERM if flipped else 1)
    assert not disk.exists("meta/raft/doubt")
    assert doubt_in(open_again(disk)) == (TERM if flipped else 1)


def test_a_doubt_of_an_earlier_version_does_not_replace_a_later_one() -> None:
    disk = new_disk()
    with_entries(disk)
    write_record(disk, "meta/raft", "doubt", "1")
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) * 3 // 5 + 40))

    assert doubt_in(open_again(disk)) == TERM
    assert doubt_in(open_again(disk)) == TERM


def test_an_operator_ends_one_doubt_and_not_the_next() -> None:
    disk = new_disk()
    with_entries(disk)
    write_hard_state(disk, HardState(TERM, B, doubt=Term(2)))
    disk.open("meta/raft/accept-loss", create=True).close()

    with recorded_events() as seen:
        assert doubt_in(open_again(disk)) is None

    (accepted,) = seen.named("quorum.loss_accepted")
    assert accepted["term"] == 2
    assert doubt_in(open_again(disk)) is None
    write_hard_state(disk, HardState(TERM, B, doubt=TERM))
    assert doubt_in(open_again(disk)) == TERM


class SyncsAtOnce:
    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        for file in files:
            file.sync()
        done(None)


def journaled(disk: CrashableDisk | FailingDisk, *, expected: bool = True) -> QuorumStore:
    """As a node opens it: the journal first."""
    salts = count(7)
    place = JournalPlace(disk, disk, lambda: next(salts), lambda work, done, _failed: done(work()))
    journal = CommitJournal.open(place, JournalOptions(first_bytes=4096, file_bytes=8192), expected=expected)
    return QuorumStore(disk, disk, GroupCommit(SyncsAtOnce(), journal=journal), journal)


def with_journaled_entries(disk: CrashableDisk) -> None:
    """Five entries, each in a frame of its own, and a node that was killed."""
    place = journaled(disk, expected=False)
    found = recover(place, Configuration((A, B)), QuorumOptions(), lambda: 0, joined=False)
    write_hard_state(disk, HardState(TERM, B))
    for index in range(1, 6):
        found.store.append([facts_entry(index, TERM, index)], NOW)
        found.store.sync(lambda error: None)


def recover_journaled(disk: CrashableDisk | FailingDisk) -> RecoveredQuorum:
    return recover(journaled(disk), EMPTY_CONFIGURATION, QuorumOptions(), lambda: 0, joined=False)


def test_a_tail_that_the_journal_has_is_restored_without_doubt() -> None:
    disk = new_disk()
    with_journaled_entries(disk)
    disk.flip_bit(SEGMENT, 8 * (disk.size(SEGMENT) * 3 // 5 + 40))

    again = recover_journaled(disk)

    assert again.store.last == 5
    assert doubt_in(again) is None


def test_what_the_journal_has_is_not_given_up_because_the_disk_is_full() -> None:
    disk = new_disk()
    with_journaled_entries(disk)
    disk.cut_short(SEGMENT, disk.size(SEGMENT) * 3 // 5)
    full = FailingDisk(disk, [FailureRule("append", errno.ENOSPC, ".log", times=FOR_EVER)])

    with pytest.raises(DiskFull):
        recover_journaled(full)
    again = recover_journaled(disk.copy())

    assert (again.store.last, doubt_in(again)) == (5, None)


def lose_the_fourth_entry_twice(disk: CrashableDisk) -> None:
    disk.cut_short(SEGMENT, disk.size(SEGMENT) * 3 // 5)
    (path,) = [path for path in disk.files() if path.endswith("001.journal")]
    content = read_file(disk, path) or b""
    fourth = content.index(encode_facts(Offset(4), [FACT]))
    disk.flip_bit(path, 8 * fourth)


@pytest.mark.parametrize(("room", "path"), [(0, ""), (2, ""), (3, ""), (5, ""), (0, "ballot.new"), (100, "")])
def test_a_loss_that_is_found_on_a_full_disk_is_found_again_when_there_is_room(room: int, path: str) -> None:
    disk = new_disk()
    with_journaled_entries(disk)
    lose_the_fourth_entry_twice(disk)
    full = FailingDisk(disk, [FailureRule("append", errno.ENOSPC, path, after=room, times=FOR_EVER)])

    try:
        recover_journaled(full)
    except DiskFull:
        assert room < 100
    else:
        # Nobody takes part before the doubt is durable.
        assert read_hard_state(disk) == HardState(TERM, B, doubt=TERM)
    again = recover_journaled(disk.copy())

    assert (again.store.last, doubt_in(again)) == (3, TERM)


def test_entries_that_log_and_journal_have_lost_are_reported_until_the_doubt_is_durable() -> None:
    disk = new_disk()
    with_journaled_entries(disk)
    lose_the_fourth_entry_twice(disk)

    with recorded_events() as seen:
        # Killed before the doubt is durable.
        crashed = disk.copy()
        crashed_log = journaled(crashed)
        assert crashed_log.journal is not None
        PartitionLog.open(
            crashed,
            "meta/raft/log",
            TopicId(UUID(int=1)),
            commit=crashed_log.commit,
            journal=crashed_log.journal.of(TopicId(UUID(int=1)), PartitionIndex(0)),
        )
        again = recover_journaled(crashed.copy())
    assert (again.store.last, doubt_in(again)) == (3, TERM)
    assert seen.named("quorum.log_damaged")[0]["last_index"] == 3

    first = recover_journaled(disk)
    assert (first.store.last, doubt_in(first)) == (3, TERM)
    # The doubt is over; what was lost is not reported once more.
    write_hard_state(disk, HardState(TERM, B))
    assert doubt_in(recover_journaled(disk)) is None
