"""One node in a process of its own, for every client that nobody here wrote."""

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.core.records import Codec, check_batches

pytest.register_assert_rewrite("tests.compatibility.clients.contract")

STOP_SECONDS = 20
SETTINGS = ("topics.partitions=4", "groups.offsets_partitions=4")


@dataclass(frozen=True)
class Broker:
    """Where the node is, and what it has on disk."""

    address: str
    data_dir: Path

    def stored_codecs(self, topic: str) -> set[Codec]:
        """The codecs of the batches a topic holds, read from its files and not from a client."""
        files = (self.data_dir / "logs" / topic).glob("*/*.log")
        return {header.codec for file in files for header in check_batches(file.read_bytes())}


def _start(data_dir: Path, events: Path) -> tuple[subprocess.Popen[str], Broker]:
    command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--data-dir", str(data_dir)]
    for door in ("--kafka", "--http", "--metrics"):
        command += [door, "127.0.0.1:0"]
    for setting in SETTINGS:
        command += ["--set", setting]
    with events.open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, events.read_text()
    return process, Broker(json.loads(line)["kafka"], data_dir)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("broker")
    process, started = _start(directory / "data", directory / "events.log")
    yield started
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 0, (directory / "events.log").read_text()


@pytest.fixture(scope="session")
def fresh() -> Callable[[str], str]:
    """Names that no other test of this session uses."""
    numbers = itertools.count()
    return lambda stem: f"{stem}-{next(numbers)}"
