"""What a broker of `penstock.testing` leaves behind is seen in a process that runs nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 600


@pytest.mark.timeout(SECONDS + 20)
def test_a_broker_in_a_process_of_its_own() -> None:
    # Clients that other tests have left open replace their pipes and sockets at any moment.
    checks = Path(__file__).with_name("broker_checks.py")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "-q",
            "--color=no",
            checks,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
