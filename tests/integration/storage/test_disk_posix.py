"""What only real files show: descriptors, short writes, and the kernel's own errors."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.storage.disk import Buffer, DirectoryLocked, DiskFailed, DiskFull, NoSuchFile, PosixDisk
from tests.support.descriptors import open_descriptors


def test_ten_thousand_readers_share_a_few_descriptors(tmp_path: Path) -> None:
    disk = PosixDisk(str(tmp_path), readers_open_max=16)
    file = disk.open("segment", create=True)
    file.append(b"0123456789")
    file.close()
    before = open_descriptors(tmp_path)

    readers = [disk.open("segment", readonly=True) for _ in range(10_000)]
    contents = {reader.pread(2, 3) for reader in readers}
    used = open_descriptors(tmp_path) - before
    for reader in readers:
        reader.close()

    assert contents == {b"234"}
    assert used == 16
    assert open_descriptors(tmp_path) == before


def test_mappings_cost_no_descriptor(tmp_path: Path) -> None:
    disk = PosixDisk(str(tmp_path))
    file = disk.open("index", create=True)
    file.append(b"0123456789")
    before = open_descriptors(tmp_path)

    mappings = [file.map_readonly() for _ in range(500)]

    assert open_descriptors(tmp_path) == before
    assert {bytes(mapping) for mapping in mappings} == {b"0123456789"}
    file.close()


def test_mappings_are_given_back(tmp_path: Path) -> None:
    disk = PosixDisk(str(tmp_path))
    file = disk.open("index", create=True)
    file.append(bytes(1 << 20))
    maps = Path("/proc/self/maps")

    view = file.map_readonly()
    part = view[100:200]
    del view
    mapped_while_a_part_is_held = maps.read_text().count(str(tmp_path))
    del part
    mapped_afterwards = maps.read_text().count(str(tmp_path))

    assert (mapped_while_a_part_is_held, mapped_afterwards) == (1, 0)
    file.close()


def test_directories_lend_a_descriptor_and_lose_it_with_their_name(tmp_path: Path) -> None:
    disk = PosixDisk(str(tmp_path))
    disk.make_directory("logs/topic")
    disk.make_directory("logs/other")
    before = open_descriptors(tmp_path)

    numbers = [disk.directory_fileno(path) for path in ("logs", "logs/topic", "logs/topic", "logs/other")]
    os.fsync(numbers[1])
    used = open_descriptors(tmp_path) - before
    disk.rename("logs/topic", "logs/renamed")
    disk.remove_tree("logs")

    assert numbers[1] == numbers[2]
    assert used == 3
    assert open_descriptors(tmp_path) == before
    with pytest.raises(NoSuchFile):
        disk.directory_fileno("logs/topic")


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make the kernel refuse to let files grow: a disk error that needs no special disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_append_that_fails_half_way_leaves_the_former_size(tmp_path: Path) -> None:
    disk = PosixDisk(str(tmp_path))
    file = disk.open("a", create=True)
    file.append(bytes(1000))

    with file_size_limit(1500), pytest.raises(DiskFailed) as failed:
        file.append(b"x" * 400, b"y" * 400)

    assert failed.value.errno == errno.EFBIG
    assert not failed.value.torn
    assert file.size() == disk.size("a") == 1000
    assert file.append(b"z") == 1001
    file.close()


def short_writes(limit_bytes: int) -> Callable[[int, Sequence[Buffer], int], int]:
    def pwritev(descriptor: int, buffers: Sequence[Buffer], offset: int, _flags: int = 0) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[:limit_bytes], offset)

    return pwritev


@pytest.mark.parametrize("limit_bytes", range(12))
def test_short_writes_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int
) -> None:
    file = PosixDisk(str(tmp_path)).open("a", create=True)
    monkeypatch.setattr(os, "pwritev", short_writes(limit_bytes))

    size = file.append(b"0123", b"", b"456789", b"ab")

    assert size == 12
    assert file.pread(0, 99) == b"0123456789ab"
    file.close()


def test_a_torn_file_is_reported_as_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    file = PosixDisk(str(tmp_path)).open("a", create=True)
    monkeypatch.setattr(os, "pwritev", no_space)
    monkeypatch.setattr(os, "ftruncate", no_space)

    with pytest.raises(DiskFull) as failed:
        file.append(b"0123")

    assert failed.value.torn
    file.close()


def test_a_locked_directory_names_the_process_that_holds_it(tmp_path: Path) -> None:
    script = (
        "import sys; from penstock.storage.disk import PosixDisk\n"
        f"lock = PosixDisk({str(tmp_path)!r}).lock('lock'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(DirectoryLocked) as refused:
            PosixDisk(str(tmp_path)).lock("lock")

        assert refused.value.pid == holder.pid
        holder.kill()

    PosixDisk(str(tmp_path)).lock("lock").close()
