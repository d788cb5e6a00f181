"""Files that nobody writes give up their descriptors where these are short, and nobody notices."""

import gc
import os
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.model import LeaderEpoch, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import DiskFailed, File, PosixDisk
from penstock.storage.journal import NO_POSITION
from penstock.storage.log import LogOptions, PartitionLog
from tests.support.descriptors import open_descriptors

FILES = 200
# How many descriptors there are until they are short.
ROOM = 40


def scarce_disk(root: Path) -> PosixDisk:
    disk = PosixDisk(str(root))
    # Files that earlier tests dropped are closed now. Later, their numbers would be room besides.
    gc.collect()
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    disk.limit_descriptors(4, lowest + ROOM)
    return disk


def park_many(disk: PosixDisk) -> list[File]:
    """More files than there are descriptors."""
    files = []
    for number in range(FILES):
        file = disk.open(f"file-{number}", create=True)
        file.park()
        files.append(file)
    return files


def test_more_files_can_be_open_than_there_are_descriptors(tmp_path: Path) -> None:
    disk = scarce_disk(tmp_path)

    files = [disk.open(f"file-{number}", create=True) for number in range(ROOM // 2)]
    for number in range(FILES):
        file = disk.open(f"more-{number}", create=True)
        file.append(b"%d" % number)
        file.sync()
        file.park()
        files.append(file)

    assert open_descriptors(tmp_path) <= ROOM + 1
    for number, file in enumerate(files[ROOM // 2 :]):
        content = b"%d" % number
        assert file.size() == len(content)
        assert file.append(b" and more") == len(content) + 9
        assert file.pread(0, 100) == content + b" and more"
        file.sync()
        file.park()
    for file in files:
        file.close()
    assert open_descriptors(tmp_path) == 0


def test_a_file_that_was_written_since_it_was_parked_stays_open(tmp_path: Path) -> None:
    disk = scarce_disk(tmp_path)
    first = disk.open("first", create=True)
    first.append(b"durable")
    first.sync()
    first.park()
    first.append(b", and this is not yet")

    others = park_many(disk)

    assert first.fileno() >= 0
    assert min(file.fileno() for file in others) == -1


def test_a_file_that_is_being_synced_stays_open(tmp_path: Path) -> None:
    disk = scarce_disk(tmp_path)
    first = disk.open("first", create=True)
    first.park()
    descriptor = first.fileno()

    others = park_many(disk)

    assert first.fileno() == descriptor
    assert min(file.fileno() for file in others) == -1


def test_a_parked_file_that_cannot_be_opened_again_is_as_it_was(tmp_path: Path) -> None:
    disk = scarce_disk(tmp_path)
    first = disk.open("first", create=True)
    first.append(b"kept")
    first.sync()
    first.park()
    others = park_many(disk)
    assert (first.fileno(), len(others)) == (-1, FILES)
    os.rename(tmp_path / "first", tmp_path / "elsewhere")

    with pytest.raises(DiskFailed) as refused:
        first.append(b" and lost")
    os.rename(tmp_path / "elsewhere", tmp_path / "first")

    assert not refused.value.torn
    assert first.append(b" and more") == 13
    assert first.pread(0, 20) == b"kept and more"


def test_a_closed_file_is_not_opened_again(tmp_path: Path) -> None:
    disk = scarce_disk(tmp_path)
    file = disk.open("first", create=True)
    file.park()
    file.close()

    with pytest.raises(DiskFailed):
        file.append(b"late")


def append(log: PartitionLog, value: bytes) -> None:
    batch = write_batch([Record(0, Timestamp(1), None, value)])
    log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))


def test_more_logs_can_be_open_than_there_are_descriptors(tmp_path: Path) -> None:
    disk = scarce_disk(tmp_path)
    logs = [PartitionLog.create(disk, f"logs/t/{n}", TopicId(UUID(int=n + 1))) for n in range(FILES)]

    for round_ in range(2):
        for log in logs:
            append(log, b"value")
            log.checkpoint()

        assert open_descriptors(tmp_path) <= ROOM + 1
        assert [log.end for log in logs] == [round_ + 1] * FILES
    for log in logs:
        log.close()
    opened = [PartitionLog.open(disk, f"logs/t/{n}", TopicId(UUID(int=n + 1)))[0] for n in range(FILES)]
    assert open_descriptors(tmp_path) <= ROOM + 1
    assert [log.end for log in opened] == [2] * FILES


def test_more_new_logs_can_be_open_than_there_are_descriptors(tmp_path: Path) -> None:
    disk = scarce_disk(tmp_path)
    paths = [f"logs/t/{n}" for n in range(FILES)]
    for number, path in enumerate(paths):
        PartitionLog.create(disk, path, TopicId(UUID(int=number + 1)), is_synced_later=True).close()

    logs = [PartitionLog.open_created(disk, path, LogOptions(), NO_POSITION)[0] for path in paths]

    assert open_descriptors(tmp_path) <= ROOM + 1
    for log in logs:
        append(log, b"value")
        log.checkpoint()
    assert open_descriptors(tmp_path) <= ROOM + 1
    assert [log.end for log in logs] == [1] * FILES
