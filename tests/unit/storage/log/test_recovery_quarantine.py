"""What recovery cuts off, it throws away only if nothing but an unfinished write can be in it."""

import errno
import random
from uuid import UUID

from penstock.core.model import LeaderEpoch, Offset, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import CrashableDisk, FailingDisk, FailureRule
from penstock.storage.log import PartitionLog

TOPIC_ID = TopicId(UUID(int=3))
NOW = Timestamp(1_700_000_000_000)
SEGMENT = "log/00000000000000000000.log"
QUARANTINE = "log/quarantine"


def log_of(disk: CrashableDisk, *counts: int) -> list[bytes]:
    """A log with synced batches behind its last checkpoint; returns their bytes."""
    log = PartitionLog.create(disk, "log", TOPIC_ID)
    batches = []
    for number, count in enumerate(counts):
        batch = write_batch([Record(0, NOW, None, b"%d" % number)] * count)
        log.append(batch, check_batches(batch), LeaderEpoch(0), NOW)
        batches.append(bytes(batch))
    log.sync(lambda _: None)
    return batches


def content(disk: CrashableDisk, path: str) -> bytes:
    return disk.open(path, readonly=True).pread(0, disk.size(path))


def flip(disk: CrashableDisk, position: int) -> None:
    file = disk.open(SEGMENT)
    file.pwrite(position, bytes([file.pread(position, 1)[0] ^ 1]))
    file.sync()


def test_good_batches_behind_a_damaged_one_are_kept_in_the_quarantine() -> None:
    disk = CrashableDisk()
    first, second, third = log_of(disk, 1, 2, 3)
    flip(disk, len(first) + len(second) - 1)

    log, report = PartitionLog.open(disk, "log", TOPIC_ID)

    assert log.end == 1
    assert report.cut is not None
    assert report.cut.kept == f"{QUARANTINE}/00000000000000000001.cut"
    kept = content(disk, report.cut.kept)
    assert len(kept) == report.cut.lost_bytes == len(second) + len(third)
    assert kept.endswith(third)


def test_what_was_kept_survives_a_power_cut_right_after_the_start() -> None:
    disk = CrashableDisk()
    first, _, third = log_of(disk, 1, 2, 3)
    flip(disk, len(first) + 70)
    _, report = PartitionLog.open(disk, "log", TOPIC_ID)
    assert report.cut is not None
    assert report.cut.kept is not None

    crashed = disk.crash(random.Random(1))

    assert content(crashed, report.cut.kept).endswith(third)


def test_a_write_that_was_never_finished_is_cut_without_a_trace() -> None:
    disk = CrashableDisk()
    first, second = log_of(disk, 1, 2)
    file = disk.open(SEGMENT)
    file.truncate(len(first) + len(second) - 5)
    file.sync()

    log, report = PartitionLog.open(disk, "log", TOPIC_ID)

    assert log.end == 1
    assert report.cut is not None
    assert report.cut.kept is None
    assert not disk.exists(QUARANTINE)


def test_a_second_cut_at_the_same_offset_does_not_overwrite_the_first() -> None:
    disk = CrashableDisk()
    first, second, *_ = log_of(disk, 1, 2, 3)
    flip(disk, len(first) + len(second) - 1)
    log, report = PartitionLog.open(disk, "log", TOPIC_ID)
    assert report.cut is not None
    assert report.cut.kept is not None
    before = content(disk, report.cut.kept)
    batch = write_batch([Record(0, NOW, None, b"again")])
    log.append(batch, check_batches(batch), LeaderEpoch(0), NOW)
    log.sync(lambda _: None)
    flip(disk, len(first) + len(batch) - 1)

    _, again = PartitionLog.open(disk, "log", TOPIC_ID)

    assert again.cut is not None
    assert again.cut.kept == f"{report.cut.kept}.2"
    assert content(disk, report.cut.kept) == before


def test_nothing_is_cut_that_a_full_disk_cannot_keep() -> None:
    disk = CrashableDisk()
    first, second, third = log_of(disk, 1, 2, 3)
    flip(disk, len(first) + len(second) - 1)
    full = FailingDisk(disk)
    full.fail(FailureRule("append", errno=errno.ENOSPC, times=1))

    log, report = PartitionLog.open(full, "log", TOPIC_ID)

    assert log.end == 1
    assert report.cut is None
    assert log.stopped is not None
    assert "no room" in report.corruption[0].reason
    assert disk.size(SEGMENT) == len(first) + len(second) + len(third)
    log.close()

    log, report = PartitionLog.open(disk, "log", TOPIC_ID)

    assert (log.end, log.stopped) == (1, None)
    assert report.cut is not None
    assert report.cut.kept is not None


def test_no_segment_is_dropped_that_a_full_disk_cannot_keep() -> None:
    disk = CrashableDisk()
    log = PartitionLog.create(disk, "log", TOPIC_ID)
    batch = bytes(write_batch([Record(0, NOW, None, b"x")]))
    for _ in range(3):
        log.append(bytearray(batch), check_batches(batch), LeaderEpoch(0), NOW)
        log.roll()
    log.sync(lambda _: None)
    disk.cut_short(SEGMENT, 10)
    full = FailingDisk(disk)
    full.fail(FailureRule("append", errno=errno.ENOSPC, times=1))

    log, report = PartitionLog.open(full, "log", TOPIC_ID)

    assert log.stopped is not None
    assert "no room" in report.corruption[0].reason
    assert disk.size(f"log/{1:020d}.log") == len(batch)


def test_segments_behind_a_cut_are_kept_as_well() -> None:
    disk = CrashableDisk()
    log = PartitionLog.create(disk, "log", TOPIC_ID)
    batch = bytes(write_batch([Record(0, NOW, None, b"x")]))
    for _ in range(3):
        log.append(bytearray(batch), check_batches(batch), LeaderEpoch(0), NOW)
        log.roll()
    log.sync(lambda _: None)
    flip(disk, len(batch) - 1)

    reopened, report = PartitionLog.open(disk, "log", TOPIC_ID)

    assert reopened.end == Offset(0)
    assert report.cut is not None
    assert disk.listdir(QUARANTINE) == [f"{offset:020d}.cut" for offset in range(3)]


def segments_of_one_batch(disk: CrashableDisk, count: int) -> bytes:
    """A log of so many segments that was closed; returns the batch that each of them holds."""
    log = PartitionLog.create(disk, "log", TOPIC_ID)
    batch = bytes(write_batch([Record(0, NOW, None, b"x")]))
    for _ in range(count):
        log.append(bytearray(batch), check_batches(batch), LeaderEpoch(0), NOW)
        log.roll()
    log.close()
    return batch


def test_without_a_checkpoint_segments_behind_a_missing_one_stay() -> None:
    disk = CrashableDisk()
    batch = segments_of_one_batch(disk, 3)
    disk.remove(f"log/{1:020d}.log")
    disk.remove("log/checkpoint")

    reopened, report = PartitionLog.open(disk, "log", TOPIC_ID)

    assert [(damage.start, damage.end) for damage in report.corruption] == [(1, 2)]
    assert report.cut is None
    assert reopened.end == 3
    assert reopened.read(Offset(2), 1000).size_bytes == len(batch)


def test_without_a_checkpoint_nobody_knows_where_the_log_began() -> None:
    disk = CrashableDisk()
    segments_of_one_batch(disk, 2)
    disk.remove(f"log/{0:020d}.log")
    disk.remove("log/checkpoint")

    reopened, report = PartitionLog.open(disk, "log", TOPIC_ID)

    assert reopened.start == 1
    assert report.doubt


def test_what_cannot_be_read_to_be_kept_is_not_cut_and_the_log_opens() -> None:
    disk = CrashableDisk()
    first, second, third = log_of(disk, 1, 2, 3)
    flip(disk, len(first) + len(second) - 1)
    failing = FailingDisk(disk)
    # The start reads it at once; when it is copied, the device fails.
    failing.fail(FailureRule("pread", errno.EIO, SEGMENT, after=1))

    log, report = PartitionLog.open(failing, "log", TOPIC_ID)

    assert report.cut is None
    assert [damage.start for damage in report.corruption] == [1]
    assert log.stopped is not None
    assert disk.size(SEGMENT) == len(first + second + third)
