"""KRaft nodes of Apache Kafka on loopback, one or several, with its defaults.

python -m benchmarks.peers.kafka [--port P] [--version V] [--set key=value]
"""

import argparse
import base64
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster.nodes import free_ports
from benchmarks.peers.maven import NEWEST, PeerUnavailable, jars, java, kafka_version

HEAP = "-Xmx1g"
FORMAT_SECONDS = 120
START_SECONDS = 120
STOP_SECONDS = 30
# Java with the kernel's promise to end it if we are killed and cannot (PR_SET_PDEATHSIG is 1, SIGTERM 15).
_LAUNCH = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"
REPLICAS_MAX = 3
# What the nodes need to find each other; everything else is as Kafka comes.
_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
"""


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """A node that answers."""

    bootstrap: str
    pid: int
    version: str
    data_dir: str


@dataclass(frozen=True, slots=True)
class KafkaNodes:
    """A cluster whose nodes all answer."""

    bootstrap: str
    pids: tuple[int, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Quorum:
    """Nodes that are controller and broker at once, by the ports of their controllers."""

    cluster: str
    controllers: tuple[int, ...]

    @property
    def voters(self) -> str:
        return ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(self.controllers, 1))

    @property
    def replicas(self) -> int:
        """Of the topics that the brokers keep for themselves."""
        return min(REPLICAS_MAX, len(self.controllers))

    def properties(self, node: int, port: int, data: Path) -> str:
        return _PROPERTIES.format(
            node=node,
            voters=self.voters,
            port=port,
            controller=self.controllers[node - 1],
            data=data,
            replicas=self.replicas,
            in_sync=max(1, self.replicas - 1),
        )


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
    directory: str | None = None,
    settings: Sequence[str] = (),
    port: int = 0,
    version: str = NEWEST,
    quorum: Quorum | None = None,
    node: int = 1,
) -> Iterator[Installation]:
    """Fetch and format; the directory is removed at the end. PeerUnavailable says why it cannot be."""
    program, libraries = java(), jars(version)
    quorum = quorum or Quorum(_cluster_id(), (free_port(),))
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-", dir=directory) as name:
        root = Path(name)
        place = Installation(program, libraries, root, port or free_port())
        text = quorum.properties(node, place.port, root / "data")
        Path(root, "server.properties").write_text(text + "\n".join(settings) + "\n")
        _format(place, quorum.cluster)
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


@contextmanager
def kafka_nodes(
    count: int, directory: str | None = None, settings: Sequence[str] = (), version: str = NEWEST
) -> Iterator[KafkaNodes]:
    """A cluster of nodes that are controller and broker at once; stopped and removed at the end."""
    quorum = Quorum(_cluster_id(), tuple(free_ports(count)))
    with ExitStack() as stack:
        places = [
            stack.enter_context(installed(directory, settings, 0, version, quorum, node))
            for node in range(1, count + 1)
        ]
        started = []
        for place in places:
            started.append(place.start())
            stack.callback(stop, started[-1])
        for process, place in zip(started, places, strict=True):
            _await_answer(process, place)
        bootstrap = ",".join(f"127.0.0.1:{place.port}" for place in places)
        _await_brokers(bootstrap, count)
        pids = tuple(process.pid for process in started)
        yield KafkaNodes(bootstrap, pids, kafka_version(places[0].jars) or "unknown")


def free_port() -> int:
    """A port that nobody listens on just now."""
    return free_ports(1)[0]


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to stop, and insist if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "a")


def _format(place: Installation, cluster: str) -> None:
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


def _await_brokers(bootstrap: str, count: int) -> None:
    """Wait until so many brokers can be given replicas."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from penstock.client import Endpoint
    from penstock.client.endpoint import opened

    admin: Any = opened(AdminClient, Endpoint(bootstrap).settings())
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if len(admin.list_topics(timeout=5).brokers) == count:
                return
        except KafkaException:
            continue
        time.sleep(0.2)
    raise PeerUnavailable(f"Kafka's {count} brokers did not find each other within {START_SECONDS} s")


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
