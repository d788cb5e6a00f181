"""Whose a data directory is, and how it was left."""

import random
from uuid import UUID

import pytest

from penstock.core.model import BrokerEpoch, NodeId, PartitionIndex, TopicId, TopicName, TopicPartition
from penstock.storage.data_directory import (
    ENCRYPTED_FORMAT,
    DataDirectory,
    DirectoryDamaged,
    FormatTooNew,
    WrongCluster,
    WrongNode,
    partition_path,
    write_record,
)
from penstock.storage.disk import CrashableDisk, DirectoryLocked, PowerCut
from penstock.storage.journal import JournalRun
from penstock.storage.log.file_names import IDENTITY
from penstock.storage.log.files import encode_identity, replace_durably

FIRST, SECOND, CLUSTER, OTHER = (UUID(int=number) for number in range(1, 5))
TOPIC = TopicId(UUID(int=77))


def some_partition(disk: CrashableDisk, topic: str = "orders", index: int = 0) -> TopicPartition:
    partition = TopicPartition(TopicName(topic), PartitionIndex(index))
    path = partition_path(partition)
    disk.make_directory(path)
    replace_durably(disk, path, IDENTITY, encode_identity(TOPIC))
    for above in (f"logs/{topic}", "logs"):
        disk.sync_directory(above)
    return partition


def test_an_empty_directory_takes_the_id_it_is_given_and_keeps_it() -> None:
    disk = CrashableDisk()

    made = DataDirectory.open(disk, FIRST)
    made.close()
    again = DataDirectory.open(disk, SECOND)

    assert made.directory_id == again.directory_id == FIRST
    assert again.cluster_id is None
    assert again.partitions() == []


def test_the_identity_is_durable_before_it_is_used() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    directory.join_cluster(CLUSTER)

    for seed in range(50):
        survivor = DataDirectory.open(disk.crash(random.Random(seed)), SECOND)
        assert (survivor.directory_id, survivor.cluster_id) == (FIRST, CLUSTER)


def test_a_directory_belongs_to_the_node_that_first_claimed_it() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    directory.claim(NodeId(4))
    directory.claim(NodeId(4))
    again = DataDirectory.open(disk.crash(random.Random(1)), SECOND)

    with pytest.raises(WrongNode, match="belongs to node 4, but this node's id is 5"):
        again.claim(NodeId(5))


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_at_any_moment_of_the_first_start_leaves_a_usable_directory(seed: int) -> None:
    complete = CrashableDisk()
    DataDirectory.open(complete, FIRST)

    for operation in range(1, complete.operations + 1):
        disk = CrashableDisk()
        disk.cut_power_at(operation)
        with pytest.raises(PowerCut):
            DataDirectory.open(disk, FIRST)

        survivor = DataDirectory.open(disk.crash(random.Random(seed)), SECOND)
        assert survivor.directory_id in (FIRST, SECOND)


def test_a_directory_belongs_to_one_cluster() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)

    directory.join_cluster(CLUSTER)
    directory.join_cluster(CLUSTER)

    with pytest.raises(WrongCluster, match=f"belongs to cluster {CLUSTER}, not {OTHER}"):
        directory.join_cluster(OTHER)


def test_a_newer_format_is_refused_with_one_clear_message() -> None:
    disk = CrashableDisk()
    DataDirectory.open(disk, FIRST).close()
    write_record(disk, "meta", "format", str(ENCRYPTED_FORMAT + 1))

    with pytest.raises(FormatTooNew, match=r"has format 5, .* reads formats up to 4: upgrade Penstock"):
        DataDirectory.open(disk, FIRST)

    disk.lock("meta/lock").close()


def test_only_one_can_have_it_open() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)

    with pytest.raises(DirectoryLocked):
        DataDirectory.open(disk, FIRST)
    directory.close()

    DataDirectory.open(disk, FIRST).close()


def test_a_clean_stop_leaves_its_epoch_to_the_next_start_once() -> None:
    disk = CrashableDisk()

    DataDirectory.open(disk, FIRST).close(clean_epoch=BrokerEpoch(42))
    after_a_clean_stop = DataDirectory.open(disk, FIRST)
    crashed = DataDirectory.open(disk.crash(random.Random(1)), FIRST)

    assert after_a_clean_stop.last_clean_epoch == 42
    assert crashed.last_clean_epoch is None


def test_a_clean_marker_is_durable_and_its_removal_too() -> None:
    disk = CrashableDisk()
    DataDirectory.open(disk, FIRST).close(clean_epoch=BrokerEpoch(42))

    for seed in range(50):
        stopped = disk.crash(random.Random(seed))
        assert DataDirectory.open(stopped, FIRST).last_clean_epoch == 42
        assert DataDirectory.open(stopped.crash(random.Random(seed)), FIRST).last_clean_epoch is None


def test_a_damaged_clean_marker_counts_as_a_crash() -> None:
    disk = CrashableDisk()
    DataDirectory.open(disk, FIRST).close(clean_epoch=BrokerEpoch(42))

    disk.flip_bit("meta/clean", 50)

    assert DataDirectory.open(disk, FIRST).last_clean_epoch is None


def test_a_run_of_the_same_boot_is_known_by_its_epoch() -> None:
    disk = CrashableDisk()
    first = DataDirectory.open(disk, FIRST)
    assert first.surviving_epoch("monday") is None
    first.set_boot(BrokerEpoch(7), "monday")

    killed = DataDirectory.open(disk.copy(), FIRST)
    unplugged = DataDirectory.open(disk.crash(random.Random(1)), FIRST)

    assert killed.surviving_epoch("monday") == 7
    assert unplugged.surviving_epoch("tuesday") is None
    # Where the boot is not known, any crash may have been one of the machine.
    unplugged.set_boot(BrokerEpoch(8), "")
    assert unplugged.surviving_epoch("") is None


def test_a_boot_that_is_forgotten_or_damaged_counts_as_another_one() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    directory.forget_boot()
    directory.set_boot(BrokerEpoch(7), "monday")
    disk.flip_bit("meta/boot", 50)
    assert directory.surviving_epoch("monday") is None

    directory.set_boot(BrokerEpoch(7), "monday")
    directory.forget_boot()
    assert directory.surviving_epoch("monday") is None


@pytest.mark.parametrize("name", ["format", "directory-id", "cluster-id"])
def test_every_bit_of_the_identity_is_guarded(name: str) -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    directory.join_cluster(CLUSTER)

    for bit in range(disk.size(f"meta/{name}") * 8):
        damaged = disk.copy()
        damaged.flip_bit(f"meta/{name}", bit)
        with pytest.raises(DirectoryDamaged):
            DataDirectory.open(damaged, SECOND)


def test_a_directory_that_lost_its_meta_is_damaged_and_not_new() -> None:
    disk = CrashableDisk()
    DataDirectory.open(disk, FIRST).close()
    some_partition(disk)

    disk.remove("meta/format")

    with pytest.raises(DirectoryDamaged, match="there are logs"):
        DataDirectory.open(disk, SECOND)


def test_a_missing_directory_id_is_damage() -> None:
    disk = CrashableDisk()
    DataDirectory.open(disk, FIRST).close()

    disk.remove("meta/directory-id")

    with pytest.raises(DirectoryDamaged, match="directory-id is missing"):
        DataDirectory.open(disk, SECOND)


def test_partitions_are_listed_with_their_topic_ids() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    good = some_partition(disk, "orders", 10)
    broken = some_partition(disk, "orders", 2)
    disk.flip_bit(f"{partition_path(broken)}/{IDENTITY}", 100)
    disk.make_directory("logs/payments/0")
    disk.make_directory("logs/payments/not-a-number")
    disk.open("logs/file", create=True)

    found = {str(each.partition): each for each in directory.partitions()}

    assert list(found) == ["orders/10", "orders/2", "payments/0"]
    assert found[str(good)].topic_id == TOPIC
    assert found["orders/2"].topic_id is None
    assert found["orders/2"].damage
    assert (found["payments/0"].topic_id, found["payments/0"].damage) == (None, "")


def test_what_is_set_aside_is_kept_and_no_longer_listed() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)

    places = []
    for _ in range(2):
        some_partition(disk)
        places.append(directory.set_aside(directory.partitions()[0]))

    assert places == [f"set-aside/orders-0-{TOPIC}", f"set-aside/orders-0-{TOPIC}.2"]
    assert directory.partitions() == []
    assert all(disk.exists(f"{place}/{IDENTITY}") for place in places)


def test_a_power_cut_while_setting_aside_loses_nothing() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    some_partition(disk)
    (found,) = directory.partitions()
    steps = disk.operations

    for operation in range(1, 6):
        for seed in range(30):
            attempt = disk.copy()
            attempt.cut_power_at(operation)
            with pytest.raises(PowerCut):
                DataDirectory.set_aside(DataDirectory(attempt, attempt.lock("l"), FIRST, None, None), found)

            survivor = attempt.crash(random.Random(seed))
            kept = [path for path in survivor.files() if path.endswith(IDENTITY)]
            assert len(kept) == 1, (operation, seed, kept)

    directory.set_aside(found)
    assert disk.operations - steps == 5
    assert {
        path for seed in range(30) for path in disk.crash(random.Random(seed)).files() if IDENTITY in path
    } == {f"set-aside/orders-0-{TOPIC}/{IDENTITY}"}


def test_the_runs_of_broker_and_journal_are_in_one_file_and_do_not_replace_each_other() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    assert (directory.known_runs(), directory.journal_run) == ((), None)

    directory.set_runs((FIRST, SECOND))
    directory.note_journal(JournalRun(0xFEED, 7))
    again = DataDirectory.open(disk.crash(random.Random(1)), FIRST)
    assert (again.known_runs(), again.journal_run) == ((FIRST, SECOND), JournalRun(0xFEED, 7))

    directory.set_runs((SECOND,))
    last = DataDirectory.open(disk.crash(random.Random(1)), FIRST)
    assert (last.known_runs(), last.journal_run) == ((SECOND,), JournalRun(0xFEED, 7))


def test_starts_that_never_registered_do_not_hide_which_run_did() -> None:
    disk = CrashableDisk()
    directory = DataDirectory.open(disk, FIRST)
    directory.set_runs([FIRST])
    for number in range(1000, 1300):
        directory.set_runs([UUID(int=number), *directory.known_runs()])
    directory.close()

    known = DataDirectory.open(disk, FIRST).known_runs()

    assert (known[0], known[-1]) == (UUID(int=1299), FIRST)
