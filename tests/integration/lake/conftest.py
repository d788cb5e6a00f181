"""A disk of one megabyte, for what happens when it is full."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline.lake import TableOptions


@pytest.fixture
def table(tmp_path: Path) -> TableOptions:
    return TableOptions(str(tmp_path / "table"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small disk is a tmpfs, and only root may mount one")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "penstock-test", str(disk)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
