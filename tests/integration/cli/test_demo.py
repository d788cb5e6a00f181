import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "penstock.cli", "demo"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Temporary files go where the test can count them."""
    (tmp_path / "temporary").mkdir()
    return os.environ | {"TMPDIR": str(tmp_path / "temporary"), "COLUMNS": "200"}


def test_the_demo_writes_reads_crashes_recovers_and_leaves_nothing_behind(
    environment: dict[str, str], tmp_path: Path
) -> None:
    ended = subprocess.run(
        [*COMMAND, "--messages", "20000", "--once"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "20,000, all exactly as sent" in ended.stdout
    assert "SIGKILL halfway through a batch, after 6,000 acknowledged records" in ended.stdout
    assert re.search(r"recovery cut .*[1-9]\d* bytes at offset", ended.stdout)
    assert "all 6,000 acknowledged ones" in ended.stdout
    assert ended.stderr.splitlines()[0] == "making up 20000 measurements"
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


def test_the_smallest_demo_works_too(environment: dict[str, str]) -> None:
    ended = subprocess.run(
        [*COMMAND, "--messages", "1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "1, all exactly as sent" in ended.stdout


def test_an_interrupted_demo_cleans_up(environment: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--messages", "5000000"], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "making up 5000000 measurements\n"

        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)

    assert (running.returncode, errors) == (130, "penstock: interrupted\n")
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("messages", ["0", "-1", "many"])
def test_a_senseless_number_of_messages_is_wrong_use(messages: str, environment: dict[str, str]) -> None:
    ended = subprocess.run(
        [*COMMAND, "--messages", messages], env=environment, capture_output=True, timeout=60, check=False
    )

    assert ended.returncode == 2
