"""Every form of the disk behaves alike: the same tests on real files and in memory."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.storage.disk import (
    CrashableDisk,
    DirectoryLocked,
    Disk,
    DiskFailed,
    FailingDisk,
    FileAlreadyExists,
    NoSuchFile,
    PosixDisk,
)

FORMS: dict[str, Callable[[Path], Disk]] = {
    "posix": lambda root: PosixDisk(str(root)),
    "posix-one-reader": lambda root: PosixDisk(str(root), readers_open_max=1),
    "crashable": lambda _: CrashableDisk(),
    "failing-posix": lambda root: FailingDisk(PosixDisk(str(root))),
    "failing-crashable": lambda _: FailingDisk(CrashableDisk()),
}


@pytest.fixture(params=FORMS, ids=str)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return FORMS[request.param](tmp_path)


def write(disk: Disk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.append(content)
    file.close()


def read(disk: Disk, path: str) -> bytes:
    file = disk.open(path, readonly=True)
    content = file.pread(0, file.size() + 1)
    file.close()
    return content


def test_appends_go_to_the_end_and_answer_the_size(disk: Disk) -> None:
    file = disk.open("a", create=True)

    sizes = [
        file.append(b"one"),
        file.append(b"", b"two", memoryview(b"three"), bytearray(b"!")),
        file.append(),
    ]

    assert sizes == [3, 12, 12]
    assert file.size() == 12
    assert file.pread(0, 100) == b"onetwothree!"
    file.close()


def test_an_append_takes_thousands_of_buffers(disk: Disk) -> None:
    file = disk.open("a", create=True)

    size = file.append(*(b"%04d" % number for number in range(3000)))

    assert size == 12_000
    assert file.pread(11_996, 4) == b"2999"
    file.close()


def test_reads_are_short_only_at_the_end(disk: Disk) -> None:
    write(disk, "a", b"0123456789")

    file = disk.open("a", readonly=True)

    assert file.pread(3, 4) == b"3456"
    assert file.pread(8, 4) == b"89"
    assert file.pread(10, 4) == b""
    assert file.pread(99, 4) == b""
    file.close()


def test_a_file_is_read_as_a_whole(disk: Disk) -> None:
    disk.make_directory("d")
    write(disk, "d/a", bytes(300_000) + b"end")
    write(disk, "d/b", b"")

    assert disk.read("d/a") == bytes(300_000) + b"end"
    assert disk.read("d/b") == b""
    with pytest.raises(NoSuchFile):
        disk.read("d/c")
    with pytest.raises(DiskFailed) as failed:
        disk.read("d")
    assert failed.value.errno == errno.EISDIR


def test_writing_in_place_keeps_the_rest_and_fills_gaps_with_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(b"0123456789")

    file.pwrite(2, b"xx")
    file.pwrite(12, b"yy")

    assert file.size() == 14
    assert file.pread(0, 99) == b"01xx456789\0\0yy"
    assert file.append(b"z") == 15
    file.close()


def test_truncating_cuts_and_extends_and_appends_continue_there(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(b"0123456789")

    file.truncate(4)
    file.truncate(6)
    file.append(b"ab")

    assert file.pread(0, 99) == b"0123\0\0ab"
    file.close()


def test_a_file_keeps_its_content_when_it_is_opened_again(disk: Disk) -> None:
    write(disk, "a", b"one")
    write(disk, "a", b"two")

    assert disk.size("a") == 6
    assert read(disk, "a") == b"onetwo"


def test_a_mapping_shows_the_present_content(disk: Disk) -> None:
    file = disk.open("a", create=True)

    empty = file.map_readonly()
    file.append(b"0123456789")
    mapped = file.map_readonly()
    file.append(b"later")
    file.close()

    assert bytes(empty) == b""
    assert bytes(mapped) == b"0123456789"
    assert mapped[3] == ord("3")
    assert mapped.readonly


def test_a_mapping_outlives_the_file_and_its_name(disk: Disk) -> None:
    write(disk, "a", b"0123456789")
    file = disk.open("a", readonly=True)

    mapped = file.map_readonly()[2:5]
    file.close()
    disk.remove("a")

    assert bytes(mapped) == b"234"


def test_what_was_just_written_is_warm(disk: Disk) -> None:
    write(disk, "a", bytes(300_000))

    file = disk.open("a", readonly=True)

    assert file.is_warm(0, 300_000)
    assert file.is_warm(299_999, 5)
    file.close()


def test_a_missing_file_is_reported_with_operation_path_and_errno(disk: Disk) -> None:
    with pytest.raises(NoSuchFile) as failed:
        disk.open("no/such/file")

    assert (failed.value.operation, failed.value.path, failed.value.errno) == (
        "open",
        "no/such/file",
        errno.ENOENT,
    )
    assert "open 'no/such/file': No such file" in str(failed.value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda disk: disk.open("missing", readonly=True),
        lambda disk: disk.open("missing/a", create=True),
        lambda disk: disk.size("missing"),
        lambda disk: disk.listdir("missing"),
        lambda disk: disk.rename("missing", "b"),
        lambda disk: disk.rename("a", "missing/a"),
        lambda disk: disk.remove("missing"),
        lambda disk: disk.sync_directory("missing"),
    ],
)
def test_every_operation_says_when_something_is_missing(disk: Disk, ask: Callable[[Disk], object]) -> None:
    write(disk, "a", b"")

    with pytest.raises(NoSuchFile):
        ask(disk)

    assert not disk.exists("missing")
    assert disk.listdir("") == ["a"]


def test_an_exclusive_open_refuses_a_file_that_exists(disk: Disk) -> None:
    disk.open("a", exclusive=True).close()

    with pytest.raises(FileAlreadyExists):
        disk.open("a", exclusive=True)


def test_a_reader_cannot_write(disk: Disk) -> None:
    write(disk, "a", b"content")
    file = disk.open("a", readonly=True)

    with pytest.raises(DiskFailed):
        file.append(b"x")
    with pytest.raises(DiskFailed):
        file.pwrite(0, b"x")
    with pytest.raises(DiskFailed):
        file.truncate(0)

    assert file.pread(0, 99) == b"content"
    file.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_closed_file_fails_and_can_be_closed_again(disk: Disk, readonly: bool) -> None:
    write(disk, "a", b"content")
    file = disk.open("a", readonly=readonly)

    file.close()
    file.close()

    with pytest.raises(DiskFailed):
        file.pread(0, 1)
    with pytest.raises(DiskFailed):
        file.sync()


def test_directories_are_made_with_those_above_and_listed_in_order(disk: Disk) -> None:
    disk.make_directory("logs/topic/0")
    disk.make_directory("logs/topic/0")
    write(disk, "logs/topic/b", b"")
    write(disk, "logs/topic/a", b"")

    assert disk.listdir("logs/topic") == ["0", "a", "b"]
    assert disk.is_directory("logs/topic/0")
    assert not disk.is_directory("logs/topic/a")
    assert not disk.is_directory("logs/elsewhere")
    assert disk.exists("logs/topic/a")


def test_a_directory_cannot_be_made_over_a_file(disk: Disk) -> None:
    write(disk, "a", b"")

    with pytest.raises(DiskFailed):
        disk.make_directory("a")


def test_renaming_replaces_a_file(disk: Disk) -> None:
    write(disk, "new", b"new")
    write(disk, "old", b"old")

    disk.rename("new", "old")

    assert disk.listdir("") == ["old"]
    assert read(disk, "old") == b"new"


def test_renaming_moves_a_directory_but_not_over_a_full_one(disk: Disk) -> None:
    disk.make_directory("a/deep")
    write(disk, "a/deep/file", b"content")
    disk.make_directory("b")
    write(disk, "b/other", b"")

    with pytest.raises(DiskFailed):
        disk.rename("a", "b")
    disk.rename("a", "c")

    assert read(disk, "c/deep/file") == b"content"
    assert disk.listdir("") == ["b", "c"]


def test_removing_takes_files_one_by_one_and_trees_as_a_whole(disk: Disk) -> None:
    disk.make_directory("a/deep")
    write(disk, "a/deep/file", b"content")
    write(disk, "a/file", b"content")

    with pytest.raises(DiskFailed):
        disk.remove("a")
    disk.remove("a/file")
    assert disk.listdir("a") == ["deep"]
    disk.remove_tree("a")
    disk.remove_tree("a")

    assert disk.listdir("") == []


def test_a_reader_follows_its_file_through_renames_and_removal(disk: Disk) -> None:
    for name in ("a", "b", "c"):
        disk.make_directory(f"dir-{name}")
        write(disk, f"dir-{name}/file", name.encode())
    files = [disk.open(f"dir-{name}/file", readonly=True) for name in ("a", "b", "c")]

    disk.rename("dir-a/file", "dir-a/renamed")
    disk.rename("dir-b", "dir-renamed")
    disk.remove("dir-c/file")
    write(disk, "dir-a/file", b"another")
    write(disk, "dir-c/file", b"another")

    # Twice round, so that a single shared descriptor has to be given up and taken back.
    assert [file.pread(0, 99) for file in files + files] == [b"a", b"b", b"c"] * 2
    for file in files:
        file.close()


def test_a_reader_keeps_its_file_when_another_takes_the_name(disk: Disk) -> None:
    write(disk, "a", b"first")
    write(disk, "b", b"second")
    write(disk, "c", b"third")
    file, other = disk.open("a", readonly=True), disk.open("c", readonly=True)

    disk.rename("b", "a")

    assert (file.pread(0, 99), other.pread(0, 99), file.pread(0, 99)) == (b"first", b"third", b"first")
    assert read(disk, "a") == b"second"
    file.close()
    other.close()


def test_syncs_of_files_and_directories_return(disk: Disk) -> None:
    disk.make_directory("a")
    file = disk.open("a/file", create=True)
    file.append(b"content")

    file.sync()
    disk.sync_directory("a")
    disk.sync_directory("")

    assert read(disk, "a/file") == b"content"
    file.close()


def test_a_lock_has_one_holder_until_it_is_closed(disk: Disk) -> None:
    lock = disk.lock("lock")

    with pytest.raises(DirectoryLocked, match="lock"):
        disk.lock("lock")
    lock.close()

    disk.lock("lock").close()
