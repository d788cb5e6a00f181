"""Getting a suite from its registry, and running what belongs to it."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


class Unavailable(Exception):
    """The suite cannot be had or built here; says why."""


def run(command: Sequence[str], cwd: Path, seconds: float, variables: Mapping[str, str] | None = None) -> str:
    """Run a step of the preparation; its output is kept in `prepare.log`."""
    if "/" not in command[0] and shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed")
    try:
        ended = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | (variables or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)}: not done after {seconds:.0f} s") from None
    (cwd / "prepare.log").write_text(ended.stdout)
    if ended.returncode:
        raise Unavailable(f"{' '.join(command)}: {ended.stdout.strip().splitlines()[-1:]}")
    return ended.stdout


def unpack(archive: Path, into: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(into, filter="data")
