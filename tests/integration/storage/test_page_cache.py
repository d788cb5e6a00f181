"""Warming a range on another thread leaves it warm, whatever became of the file's own descriptor."""

import os
from pathlib import Path
from threading import Thread

import pytest

from penstock.storage.disk import PosixDisk, warmer


def test_a_range_can_be_read_off_the_loop_after_the_file_was_closed(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(3 << 20))
    disk = PosixDisk(str(tmp_path))
    file = disk.open("segment", readonly=True)
    failures: list[OSError] = []

    def guarded() -> None:
        try:
            read()
        except OSError as error:
            failures.append(error)

    read = warmer(file, 100, 2 << 20)
    file.close()
    thread = Thread(target=guarded)
    thread.start()
    thread.join()

    assert failures == []
    assert disk.open("segment", readonly=True).is_warm(100, 2 << 20)


def test_a_range_that_left_the_page_cache_is_cold_until_it_is_warmed(tmp_path: Path) -> None:
    size = 4 << 20
    path = tmp_path / "segment"
    path.write_bytes(bytes(size))
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    file = PosixDisk(str(tmp_path)).open("segment", readonly=True)
    if file.is_warm(0, size):
        pytest.skip("this filesystem does not give pages up when it is asked to")

    warmer(file, 0, size)()

    assert file.is_warm(0, size)


def test_a_range_beyond_the_end_of_the_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(100))
    file = PosixDisk(str(tmp_path)).open("segment", readonly=True)

    warmer(file, 50, 1000)()

    assert file.is_warm(0, 100)
