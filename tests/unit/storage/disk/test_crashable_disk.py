"""What may and what may not survive a power cut."""

import random

import pytest

from penstock.storage.disk import SECTOR_BYTES, CrashableDisk, PowerCut

SEEDS = range(300)


def survivors(disk: CrashableDisk) -> list[CrashableDisk]:
    return [disk.crash(random.Random(seed)) for seed in SEEDS]


def content(disk: CrashableDisk, path: str) -> bytes:
    return disk.open(path, readonly=True).pread(0, 1 << 20) if disk.exists(path) else b"missing"


def durable_file(disk: CrashableDisk, path: str, written: bytes = b"") -> None:
    file = disk.open(path, create=True)
    file.append(written)
    file.sync()
    disk.sync_directory("")


def test_synced_content_under_a_synced_name_always_survives() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"content")

    assert {content(after, "a") for after in survivors(disk)} == {b"content"}


def test_unsynced_content_is_lost_kept_or_torn() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"A" * 100)

    disk.open("a").append(b"B" * 2000)
    found = {content(after, "a") for after in survivors(disk)}

    assert b"A" * 100 in found
    assert b"A" * 100 + b"B" * 2000 in found
    assert all(after.startswith(b"A" * 100) and len(after) <= 2100 for after in found)
    assert any(0 < after.count(b"B") < 2000 for after in found)


def test_the_size_may_arrive_before_the_content() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a")

    disk.open("a").append(b"B" * 4 * SECTOR_BYTES)
    found = {content(after, "a") for after in survivors(disk)}

    assert any(len(after) == 4 * SECTOR_BYTES and b"\0" in after and after.endswith(b"B") for after in found)


def test_sectors_survive_independently_of_the_order_they_were_written_in() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", bytes(2 * SECTOR_BYTES))
    file = disk.open("a")

    file.pwrite(0, b"first")
    file.pwrite(SECTOR_BYTES, b"second")
    found = {content(after, "a") for after in survivors(disk)}

    assert {(b"first" in after, b"second" in after) for after in found} == {
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    }


def test_a_synced_file_vanishes_when_its_name_was_not_synced() -> None:
    disk = CrashableDisk()

    file = disk.open("a", create=True)
    file.append(b"content")
    file.sync()

    assert {content(after, "a") for after in survivors(disk)} == {b"content", b"missing"}


def test_a_file_vanishes_with_an_unsynced_directory_above_it() -> None:
    disk = CrashableDisk()
    disk.make_directory("dir")
    disk.open("dir/a", create=True).sync()

    disk.sync_directory("dir")

    assert {after.exists("dir/a") for after in survivors(disk)} == {True, False}


def test_a_synced_name_does_not_make_the_content_durable() -> None:
    disk = CrashableDisk()
    disk.open("a", create=True).append(b"content")

    disk.sync_directory("")

    assert {b"", b"content"} < {content(after, "a") for after in survivors(disk)}


def test_an_unsynced_rename_happens_as_a_whole_or_not_at_all() -> None:
    disk = CrashableDisk()
    durable_file(disk, "old", b"old")
    durable_file(disk, "new", b"new")

    disk.rename("new", "old")

    assert {(content(after, "old"), content(after, "new")) for after in survivors(disk)} == {
        (b"old", b"new"),
        (b"new", b"missing"),
    }


def test_a_synced_rename_stays() -> None:
    disk = CrashableDisk()
    durable_file(disk, "old", b"old")
    durable_file(disk, "new", b"new")

    disk.rename("new", "old")
    disk.sync_directory("")

    assert {(content(after, "old"), after.exists("new")) for after in survivors(disk)} == {(b"new", False)}


def test_a_rename_between_directories_needs_both_synced() -> None:
    disk = CrashableDisk()
    for directory in ("from", "to"):
        disk.make_directory(directory)
    disk.sync_directory("")
    disk.open("from/a", create=True)
    disk.sync_directory("from")

    disk.rename("from/a", "to/a")
    disk.sync_directory("to")
    half = {(after.exists("from/a"), after.exists("to/a")) for after in survivors(disk)}
    disk.sync_directory("from")
    whole = {(after.exists("from/a"), after.exists("to/a")) for after in survivors(disk)}

    assert half == {(True, False), (False, True)}
    assert whole == {(False, True)}


def test_a_name_that_is_used_again_implies_what_happened_to_it_before() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"old")

    disk.rename("a", "b")
    disk.open("a", create=True).append(b"new")

    for after in survivors(disk):
        assert b"old" in (content(after, "a"), content(after, "b"))


def test_an_unsynced_removal_may_come_undone() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"content")

    disk.remove("a")

    assert {content(after, "a") for after in survivors(disk)} == {b"content", b"missing"}


def test_names_of_one_directory_survive_independently() -> None:
    disk = CrashableDisk()

    disk.open("a", create=True)
    disk.open("b", create=True)

    assert {tuple(after.listdir("")) for after in survivors(disk)} == {(), ("a",), ("b",), ("a", "b")}


def test_the_same_chance_gives_the_same_disk_and_leaves_the_old_one_alone() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"A" * 100)
    disk.open("a").append(b"B" * 5000)

    twins = [content(disk.crash(random.Random(7)), "a") for _ in range(2)]

    assert twins[0] == twins[1]
    assert content(disk, "a") == b"A" * 100 + b"B" * 5000


def test_what_survived_a_crash_is_durable() -> None:
    disk = CrashableDisk()
    disk.open("a", create=True).append(b"B" * 5000)

    for after in survivors(disk)[:50]:
        assert {content(again, "a") for again in survivors(after)[:20]} == {content(after, "a")}


def test_a_copy_has_the_same_unsynced_changes() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"A" * 100)
    disk.open("a").append(b"B" * 5000)
    disk.open("b", create=True)

    twin = disk.copy()
    disk.open("a").sync()
    disk.sync_directory("")

    assert len({content(after, "a") for after in survivors(twin)}) > 1
    assert {after.exists("b") for after in survivors(twin)} == {True, False}
    assert {after.exists("b") for after in survivors(disk)} == {True}


@pytest.mark.parametrize("operation", range(1, 6))
def test_the_power_goes_off_at_the_chosen_operation(operation: int) -> None:
    disk = CrashableDisk()
    file = disk.open("a", create=True)
    disk.cut_power_at(operation)

    for _ in range(operation - 1):
        file.append(b"x")
    with pytest.raises(PowerCut):
        file.append(b"x")

    assert disk.operations == operation + 1
    with pytest.raises(PowerCut):
        disk.open("b", create=True)


def test_an_operation_that_was_cut_may_have_happened() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"A")
    disk.cut_power_at(1)

    with pytest.raises(PowerCut):
        disk.open("a").append(b"B")

    assert {content(after, "a") for after in survivors(disk)} == {b"A", b"AB", b"A\0"}


def test_a_sync_that_was_cut_has_made_nothing_durable() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a")
    file = disk.open("a")
    file.append(b"B")
    disk.cut_power_at(1)

    with pytest.raises(PowerCut):
        file.sync()

    assert {content(after, "a") for after in survivors(disk)} == {b"", b"B", b"\0"}


def test_damage_reaches_what_is_durable() -> None:
    disk = CrashableDisk()
    durable_file(disk, "a", b"\x00\x01\x02")

    disk.flip_bit("a", 15)
    flipped = content(disk.crash(random.Random(1)), "a")
    disk.cut_short("a", 2)
    cut = content(disk.crash(random.Random(1)), "a")

    assert flipped == b"\x00\x81\x02"
    assert cut == b"\x00\x81"


def test_a_lost_file_or_directory_is_gone_after_a_crash_too() -> None:
    disk = CrashableDisk()
    disk.make_directory("a/b")
    disk.open("a/b/file", create=True).sync()
    for path in ("a/b", "a", ""):
        disk.sync_directory(path)

    disk.lose("a/b")

    assert disk.listdir("a") == []
    assert disk.crash(random.Random(1)).listdir("a") == []
