"""One KRaft node of Apache Kafka on loopback, with its defaults.

python -m benchmarks.peers.kafka [--port P] [--version V] [--set key=value]
"""

import argparse
import base64
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.maven import NEWEST, PeerUnavailable, jars, java, kafka_version

HEAP = "-Xmx1g"
FORMAT_SECONDS = 120
START_SECONDS = 120
STOP_SECONDS = 30
# Java with the kernel's promise to end it if we are killed and cannot (PR_SET_PDEATHSIG is 1, SIGTERM 15).
_LAUNCH = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"
# What a single node needs; everything else is as Kafka comes.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """A node that answers."""

    bootstrap: str
    pid: int
    version: str
    data_dir: str


@dataclass(frozen=True, slots=True)
class Installation:
    """Java, Kafka's jars, and a formatted directory to run on."""

    java: str
    jars: Path
    root: Path
    port: int

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the process; it answers some seconds later."""
        with Path(self.root, "out.log").open("ab") as out:
            launched = [sys.executable, "-c", _LAUNCH, self.java]
            return subprocess.Popen(
                [*launched, HEAP, "-cp", f"{self.jars}/*", "kafka.Kafka", f"{self.root}/server.properties"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.root,
                start_new_session=True,
            )


@contextmanager
def installed(
    directory: str | None = None, settings: Sequence[str] = (), port: int = 0, version: str = NEWEST
) -> Iterator[Installation]:
    """Fetch and format; the directory is removed at the end. PeerUnavailable says why it cannot be."""
    program, libraries = java(), jars(version)
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-", dir=directory) as name:
        root = Path(name)
        place = Installation(program, libraries, root, port or free_port())
        text = _PROPERTIES.format(port=place.port, controller=free_port(), data=root / "data")
        Path(root, "server.properties").write_text(text + "\n".join(settings) + "\n")
        _format(place)
        yield place


@contextmanager
def kafka_node(
    directory: str | None = None, settings: Sequence[str] = (), port: int = 0, version: str = NEWEST
) -> Iterator[KafkaNode]:
    """A node that answers; stopped and removed at the end."""
    with installed(directory, settings, port, version) as place:
        process = place.start()
        try:
            _await_answer(process, place)
            yield KafkaNode(
                f"127.0.0.1:{place.port}",
                process.pid,
                kafka_version(place.jars) or "unknown",
                str(place.root / "data"),
            )
        finally:
            stop(process)


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to stop, and insist if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _format(place: Installation) -> None:
    cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "a")
    tool = [place.java, "-cp", f"{place.jars}/*", "kafka.tools.StorageTool", "format", "-t", cluster]
    answer = subprocess.run(
        [*tool, "-c", str(place.root / "server.properties")],
        capture_output=True,
        text=True,
        timeout=FORMAT_SECONDS,
        check=False,
    )
    if answer.returncode != 0:
        raise PeerUnavailable(f"Kafka's directory could not be formatted: {answer.stderr.strip()[-200:]}")


def _await_answer(process: "subprocess.Popen[bytes]", place: Installation) -> None:
    from penstock.client import ClientError, Endpoint, TopicAdmin

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = Path(place.root, "out.log").read_text(errors="replace").strip().splitlines()
            raise PeerUnavailable(f"Kafka ended: {lines[-1] if lines else 'it said nothing'}")
        try:
            TopicAdmin(Endpoint(f"127.0.0.1:{place.port}"))
        except ClientError:
            time.sleep(0.2)
        else:
            return
    raise PeerUnavailable(f"Kafka did not answer within {START_SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.kafka", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="where it listens; any free port without it")
    parser.add_argument("--version", default=NEWEST, help="a release; the newest 4.x without it")
    parser.add_argument("--directory", help="where its throw-away directory is made")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a broker setting")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        with kafka_node(arguments.directory, arguments.set, arguments.port, arguments.version) as node:
            print(f"ready: Kafka {node.version} at {node.bootstrap}, pid {node.pid}", flush=True)
            signal.pause()
    except PeerUnavailable as why:
        sys.exit(f"no Kafka here: {why}")


if __name__ == "__main__":
    main()
