"""The metadata log in an encrypted directory: no entry in clear, none of another node, and none lost."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from penstock.broker.cluster.quorum import MetadataLost, QuorumOptions, QuorumStore
from penstock.broker.cluster.raft_codec import encode_facts
from penstock.broker.cluster.raft_recovery import LOG, RecoveredQuorum, recover
from penstock.broker.cluster.raft_storage import read_entries
from penstock.core.metadata import ClusterIdSet
from penstock.core.model import CorruptionError, Instant, Offset, Timestamp
from penstock.core.raft import Configuration, Entry, Index, Term
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk, Disk
from penstock.storage.log.file_names import KEYS
from penstock.storage.sealing import BrokenEnvelope, KeyUnavailable
from tests.property.raft.raft_arena import member_of
from tests.support.recorded_events import recorded_events
from tests.unit.broker.cluster.raft.test_raft_recovery import InstantSyncs
from tests.unit.broker.cluster.raft.test_sealed_snapshots import (
    DIRECTORY_ID,
    NEW,
    OLD,
    bytes_on,
    cut_everywhere,
    vault_of,
)

A = member_of(1)
SECRET_WORD = b"hunter2-hunter2-hunter2"
OPTIONS = QuorumOptions(segment_bytes=1_000)


def entry(index: int) -> Entry:
    fact = ClusterIdSet(f"{SECRET_WORD.decode()} {index}")
    return Entry(Index(index), Term(1 + index // 20), encode_facts(Offset(index), [fact]))


def entries(start: int, end: int) -> list[Entry]:
    return [entry(index) for index in range(start, end)]


def blank_disk() -> CrashableDisk:
    disk = CrashableDisk()
    disk.make_directory("meta")
    disk.sync_directory("")
    return disk


def open_on(
    disk: Disk,
    secrets: Mapping[str, bytes] | None = OLD,
    *,
    plain: bool = False,
    directory_id: UUID = DIRECTORY_ID,
) -> RecoveredQuorum:
    vault = None if secrets is None else vault_of(secrets, list(secrets)[-1])
    place = QuorumStore(disk, disk, GroupCommit(InstantSyncs()), None, vault, directory_id, plain)
    return recover(place, Configuration((A,)), OPTIONS, lambda: Instant(0), joined=False)


def filled(secrets: Mapping[str, bytes] | None = OLD, count: int = 30) -> CrashableDisk:
    """A directory with so many entries, closed in order."""
    disk = blank_disk()
    found = open_on(disk, secrets, plain=True)
    for one in entries(1, 1 + count):
        found.store.append([one], Timestamp(1))
    assert len(found.store.log.segments()) > 2
    found.store.log.close()
    return disk


def entries_of(found: RecoveredQuorum) -> list[Entry]:
    return list(read_entries(found.store.log))


def test_no_entry_stands_on_disk_and_a_start_finds_all_of_them() -> None:
    disk = filled()

    again = open_on(disk)

    assert entries_of(again) == entries(1, 31)
    assert SECRET_WORD not in bytes_on(disk)


def test_entries_that_are_cut_and_replaced_are_sealed_and_read_again() -> None:
    disk = filled()
    found = open_on(disk)

    found.store.truncate(Index(12))
    found.store.append([Entry(Index(12), Term(5), entry(12).content)], Timestamp(1))
    found.store.log.close()

    assert entries_of(open_on(disk)) == [*entries(1, 12), Entry(Index(12), Term(5), entry(12).content)]
    assert SECRET_WORD not in bytes_on(disk)


def test_what_was_synced_is_there_whenever_the_power_is_cut() -> None:
    disk = filled()

    def go_on(disk: CrashableDisk) -> None:
        found = open_on(disk)
        found.store.append(entries(31, 45), Timestamp(1))
        found.store.log.close()

    for victim in cut_everywhere(disk, go_on):
        found = open_on(victim)
        there = entries_of(found)
        assert there[:30] == entries(1, 31)
        assert there == entries(1, 1 + len(there))
        assert SECRET_WORD not in bytes_on(victim)


def test_a_log_in_clear_is_encrypted_by_a_start_whenever_the_power_is_cut() -> None:
    disk = filled(None)
    assert SECRET_WORD in bytes_on(disk)

    with recorded_events() as events:
        open_on(disk.copy(), plain=True).store.log.close()
    (said,) = events.named("metadata.log_encrypted")
    assert said["segments"] > 2

    for victim in cut_everywhere(disk, lambda disk: open_on(disk, plain=True).store.log.close()):
        found = open_on(victim, plain=True)
        assert entries_of(found) == entries(1, 31)
        assert SECRET_WORD not in bytes_on(victim)
        found.store.log.close()
        # From now on nothing in clear counts.
        assert entries_of(open_on(victim)) == entries(1, 31)


def test_a_log_in_clear_does_not_take_the_place_of_an_encrypted_one() -> None:
    disk, forged = filled(), filled(None)
    for path in disk.files():
        if path.startswith(f"{LOG}/"):
            disk.remove(path)
    for path in forged.files():
        if path.startswith(f"{LOG}/"):
            copied = disk.open(path, create=True)
            copied.append(forged.read(path))
            copied.close()

    with pytest.raises(MetadataLost, match="keys is missing"):
        open_on(disk)


def test_a_log_of_another_node_does_not_open() -> None:
    disk = filled()
    other = UUID(int=78)

    with pytest.raises(BrokenEnvelope, match=f"the key table of the log {LOG} is broken"):
        open_on(disk, directory_id=other)


def test_a_master_key_that_is_missing_is_one_clear_error_and_no_damage() -> None:
    disk = filled()
    before = {path: disk.read(path) for path in disk.files() if path.endswith((".log", KEYS))}

    # The snapshots were encrypted again, and the log was not.
    with pytest.raises(KeyUnavailable, match="the master key 'old' is not there"):
        open_on(disk, NEW)

    assert {path: disk.read(path) for path in before} == before


def test_a_changed_bit_is_found_and_the_log_ends_in_front_of_it() -> None:
    disk = filled()
    segment = f"{LOG}/00000000000000000000.log"
    disk.flip_bit(segment, 8 * (len(disk.read(segment)) - 20))

    with recorded_events() as events:
        found = open_on(disk)

    there = entries_of(found)
    assert there == entries(1, 1 + len(there))
    assert 0 < len(there) < 30
    assert events.named("quorum.log_damaged")
    assert found.recovered.hard_state is not None
    assert found.recovered.hard_state.doubt is not None


def test_a_table_of_keys_that_was_changed_ends_the_start() -> None:
    disk = filled()
    disk.flip_bit(f"{LOG}/{KEYS}", 8 * 60)

    with pytest.raises(CorruptionError, match="key table of the log"):
        open_on(disk)
