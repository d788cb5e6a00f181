"""A data directory on real files."""

import os
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.model import BrokerEpoch
from penstock.storage.data_directory import DataDirectory, list_partitions
from penstock.storage.disk import CrashableDisk, DirectoryLocked, Disk, PosixDisk


def test_a_data_directory_is_made_where_nothing_was_and_found_again(tmp_path: Path) -> None:
    root = tmp_path / "not" / "there"

    made = DataDirectory.open(PosixDisk(str(root)), UUID(int=1))
    made.join_cluster(UUID(int=9))
    made.close(clean_epoch=BrokerEpoch(5))
    again = DataDirectory.open(PosixDisk(str(root)), UUID(int=2))

    assert (again.directory_id, again.cluster_id, again.last_clean_epoch) == (UUID(int=1), UUID(int=9), 5)
    assert (root / "meta" / "directory-id").read_text().startswith(f"directory-id {UUID(int=1)}\n")
    again.close()


def test_several_nodes_may_make_the_directory_above_theirs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, mkdir = tmp_path / "shared", os.mkdir

    def overtaken(path: str, mode: int = 0o777) -> None:
        if path == str(shared):
            mkdir(path, mode)
        mkdir(path, mode)

    monkeypatch.setattr("os.mkdir", overtaken)
    PosixDisk(str(shared / "node-1")).make_directory("")

    assert (shared / "node-1").is_dir()


def test_a_second_opener_is_told_the_directory_and_the_process(tmp_path: Path) -> None:
    first = DataDirectory.open(PosixDisk(str(tmp_path)), UUID(int=1))

    with pytest.raises(DirectoryLocked) as refused:
        DataDirectory.open(PosixDisk(str(tmp_path)), UUID(int=1))

    assert str(refused.value) == f"'{tmp_path}' is locked by process {os.getpid()}"
    first.close()


@pytest.mark.parametrize("is_posix", [True, False])
def test_a_file_in_the_place_of_a_log_is_damage(tmp_path: Path, is_posix: bool) -> None:
    disk: Disk = PosixDisk(str(tmp_path)) if is_posix else CrashableDisk()
    disk.make_directory("logs/orders/0")
    disk.open("logs/orders/1", create=True).close()

    found = [(one.partition.partition, one.topic_id, one.damage) for one in list_partitions(disk)]

    assert found == [(0, None, ""), (1, None, "a file is in the place of its directory")]
