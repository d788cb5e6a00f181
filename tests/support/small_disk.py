"""A disk of a few megabytes, for what happens when a disk is full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, megabytes: int = 1) -> Iterator[Path]:
    """A filesystem of its own at `path`; the test is skipped where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("a small disk is a tmpfs, and only root may mount one")
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "penstock-test", str(path)]
    mounted = subprocess.run(command, check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
