"""Failures hit exactly the calls they name."""

import errno
import random

import pytest

from penstock.storage.disk import CrashableDisk, DiskFailed, DiskFull, FailingDisk, FailureRule


def test_the_chosen_calls_fail_and_the_others_do_not() -> None:
    disk = FailingDisk(
        CrashableDisk(), [FailureRule("append", errno.ENOSPC, path_ends=".log", after=1, times=2)]
    )
    log, index = disk.open("a.log", create=True), disk.open("a.index", create=True)

    log.append(b"1")
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.append(b"lost")
        index.append(b"x")
    log.append(b"2")

    assert log.pread(0, 99) == b"12"
    assert index.pread(0, 99) == b"xx"


def test_a_short_write_leaves_a_torn_file() -> None:
    disk = FailingDisk(CrashableDisk(), [FailureRule("append", errno.ENOSPC, kept_bytes=3)])
    file = disk.open("a", create=True)

    with pytest.raises(DiskFull) as failed:
        file.append(b"01", b"2345")

    assert failed.value.torn
    assert file.pread(0, 99) == b"012"


def test_after_a_failed_sync_a_later_one_succeeds_without_saving_anything() -> None:
    inner = CrashableDisk()
    disk = FailingDisk(inner, [FailureRule("sync", after=1)])
    file = disk.open("a", create=True)
    disk.sync_directory("")
    file.append(b"durable")
    file.sync()

    file.append(b"+lost")
    with pytest.raises(DiskFailed):
        file.sync()
    file.sync()
    file.append(b"+kept")
    file.sync()

    survivor = inner.crash(random.Random(1))
    assert file.pread(0, 99) == b"durable+lost+kept"
    assert survivor.open("a").pread(0, 99) == b"durable\0\0\0\0\0+kept"


def test_a_failed_sync_is_reported_once_to_everybody_who_had_the_file_open() -> None:
    disk = FailingDisk(CrashableDisk(), [FailureRule("sync")])
    ours = disk.open("a", create=True)
    theirs = disk.open("a")

    with pytest.raises(DiskFailed):
        ours.sync()
    with pytest.raises(DiskFailed):
        theirs.sync()
    later = disk.open("a")

    for file in (ours, theirs, later):
        file.sync()


def test_a_slow_call_waits_and_then_goes_well() -> None:
    waits: list[str] = []
    disk = FailingDisk(CrashableDisk(), [FailureRule("sync", errno=0, wait=lambda: waits.append("waited"))])
    file = disk.open("a", create=True)

    file.sync()
    file.sync()

    assert waits == ["waited"]


def test_a_healed_disk_fails_no_more() -> None:
    disk = FailingDisk(CrashableDisk(), [FailureRule("sync_directory", times=99)])

    with pytest.raises(DiskFailed):
        disk.sync_directory("")
    disk.heal()

    disk.sync_directory("")


@pytest.mark.parametrize(
    "operation", ["open", "listdir", "make_directory", "rename", "remove", "remove_tree", "lock"]
)
def test_names_can_fail_too(operation: str) -> None:
    inner = CrashableDisk()
    inner.open("a", create=True)
    disk = FailingDisk(inner)
    disk.fail(FailureRule(operation))
    arguments = ("a", "b") if operation == "rename" else ("a",)

    with pytest.raises(DiskFailed) as failed:
        getattr(disk, operation)(*arguments)

    assert failed.value.errno == errno.EIO
    assert inner.listdir("") == ["a"]
