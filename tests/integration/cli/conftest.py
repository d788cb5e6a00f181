"""A broker in a process of its own for each module, and the command line in this one."""

import io
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.child import BrokerProcess, throw_away_broker

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with throw_away_broker(["topics.partitions=2", "groups.offsets_partitions=4"]) as child:
        yield child


@pytest.fixture
def run(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Run one command line against the broker, in an empty directory; returns code, stdout and stderr."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = main(arguments)
        shown = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)

    return command


def columns(text: str) -> list[list[str]]:
    """The lines of a table as it stands in a pipe, each taken apart."""
    return [re.split(r" {2,}", line) for line in text.splitlines()]


@pytest.fixture
def topic() -> str:
    return f"t-{os.urandom(6).hex()}"
