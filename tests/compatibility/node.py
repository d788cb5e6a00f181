"""One node in a process of its own, for clients and suites that nobody here wrote."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.core.records import Codec, check_batches

STOP_SECONDS = 20


@dataclass(frozen=True)
class Broker:
    """Where the node is, and what it has on disk."""

    address: str
    data_dir: Path

    def stored_codecs(self, topic: str) -> set[Codec]:
        """The codecs of the batches a topic holds, read from its files and not from a client."""
        files = (self.data_dir / "logs" / topic).glob("*/*.log")
        return {header.codec for file in files for header in check_batches(file.read_bytes())}


@contextmanager
def running_node(directory: Path, *settings: str) -> Iterator[Broker]:
    """A node on free ports that keeps data and events in `directory`, and must end well."""
    events = directory / "events.log"
    command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--data-dir", str(directory / "data")]
    for door in ("--kafka", "--http", "--metrics"):
        command += [door, "127.0.0.1:0"]
    for setting in settings:
        command += ["--set", setting]
    with events.open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, events.read_text()
        yield Broker(json.loads(line)["kafka"], directory / "data")
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert process.returncode == 0, events.read_text()
