import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.config import ConfigError
from penstock.core.model import PenstockError
from penstock.testing import Broker, broker
from penstock.testing.brokers import TopicNotCreated
from penstock.testing.fork_server import FORK_SERVER, LINGER_SECONDS, ForkServer
from penstock.testing.nodes import NodeFailed, NodeOnThread

SECONDS = 30


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """What is opened once per process, by libuv and librdkafka, is no broker's; nor is the fork server."""
    with broker() as started:
        round_trip(started, started.create_topic())
    FORK_SERVER.linger_seconds = 300
    with broker(in_process=False):
        pass
    yield
    FORK_SERVER.close()
    FORK_SERVER.linger_seconds = LINGER_SECONDS


def round_trip(started: Broker, topic: str) -> bytes:
    """Write a record and read it in a group."""
    producer = Producer({"bootstrap.servers": started.bootstrap_servers})
    producer.produce(topic, b"hello")
    assert producer.flush(SECONDS) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": started.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS)
        assert message is not None
        return bytes(message.value())
    finally:
        consumer.close()


@contextmanager
def nothing_left(directory: Path) -> Iterator[None]:
    """Threads, children, files, open descriptors, signal handlers and the collector are as before."""

    def observed() -> dict[str, object]:
        # What a node was made of is freed by then.
        gc.collect()
        return {
            "threads": sorted(thread.name for thread in threading.enumerate()),
            "children": sorted(_children()),
            "files": sorted(directory.iterdir()),
            "descriptors": sorted(_descriptors()),
            "handlers": [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)],
            "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        }

    before = observed()
    yield
    assert observed() == before


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{name}")


def _children(parent: int | None = None) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == (parent or os.getpid()):
                yield int(name)


@pytest.mark.parametrize("in_process", [True, False])
def test_a_broker_serves_clients_and_leaves_nothing_behind(tmp_path: Path, in_process: bool) -> None:
    with nothing_left(tmp_path), broker(in_process=in_process, directory=str(tmp_path)) as started:
        topic = started.create_topic(partitions=3)

        assert round_trip(started, topic) == b"hello"
        with urllib.request.urlopen(f"{started.http_url}/ready", timeout=SECONDS) as page:
            assert page.status == 200


@pytest.mark.parametrize("in_process", [True, False])
def test_a_test_that_fails_gets_its_own_error_and_leaves_nothing_behind(
    tmp_path: Path, in_process: bool
) -> None:
    with nothing_left(tmp_path):
        with pytest.raises(ZeroDivisionError), broker(in_process=in_process, directory=str(tmp_path)):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), broker(in_process=in_process, directory=str(tmp_path)):
            raise ZeroDivisionError


def test_settings_reach_the_broker_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    with broker(settings={"topics.partitions": 4}, directory=str(tmp_path)) as started:
        topic = started.create_topic()
        assert len(list(Path(next(tmp_path.glob("*")), "node-1/logs", topic).iterdir())) == 4

    refused = pytest.raises(ConfigError, match=r"topics\.partitons")
    with nothing_left(tmp_path), refused, broker(settings={"topics.partitons": 4}):
        pass


def test_a_node_that_cannot_start_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    settings = {"listen.kafka": "192.0.2.1:9092"}
    for in_process in (True, False):
        refused = pytest.raises(PenstockError, match=r"192\.0\.2\.1:9092")
        started = broker(in_process=in_process, settings=settings, directory=str(tmp_path))
        with nothing_left(tmp_path), refused, started:
            pass


def test_a_node_that_died_is_an_error_at_the_end_of_the_test(tmp_path: Path) -> None:
    def nodes() -> set[int]:
        return {pid for server in _children() for pid in _children(server)}

    before, failed = nodes(), pytest.raises(NodeFailed, match="ended")
    with failed, broker(in_process=False, directory=str(tmp_path)):
        (node,) = nodes() - before
        os.kill(node, signal.SIGKILL)
        _await(lambda: not Path(f"/proc/{node}").exists())

    assert list(tmp_path.iterdir()) == []


def test_a_node_on_a_thread_says_how_to_have_one_that_can_be_killed(tmp_path: Path) -> None:
    with broker(directory=str(tmp_path)) as started, pytest.raises(NodeOnThread, match="in_process=False"):
        started.nodes[0].kill()


def test_a_node_is_killed_and_comes_back_with_its_data_at_the_same_address(tmp_path: Path) -> None:
    with broker(in_process=False, directory=str(tmp_path)) as started:
        (node,) = started.nodes
        topic, address = started.create_topic(), started.bootstrap_servers
        assert round_trip(started, topic) == b"hello"

        node.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        node.start()

        assert started.bootstrap_servers == address
        with pytest.raises(TopicNotCreated, match="exists already"):
            started.create_topic(topic)


@pytest.mark.parametrize("in_process", [True, False])
def test_nodes_form_a_cluster(tmp_path: Path, in_process: bool) -> None:
    with nothing_left(tmp_path), broker(nodes=3, in_process=in_process, directory=str(tmp_path)) as started:
        topic = started.create_topic(replication_factor=3)

        assert len(started.bootstrap_servers.split(",")) == 3
        assert round_trip(started, topic) == b"hello"


@pytest.mark.parametrize("in_process", [True, False])
def test_nothing_outlives_a_test_that_is_killed(tmp_path: Path, in_process: bool) -> None:
    script = (
        "import sys; from penstock.testing import broker\n"
        f"with broker(in_process={in_process}, directory={str(tmp_path)!r}):\n"
        "    print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        (data,) = tmp_path.iterdir()
        descendants = [*_children(killed.pid)]
        descendants += [pid for child in descendants for pid in _children(child)]
        assert len(descendants) == (1 if in_process else 3)

        killed.kill()

    _await(lambda: not data.exists() and not any(_is_alive(pid) for pid in descendants))


def test_the_fork_server_ends_when_nobody_needs_it(tmp_path: Path) -> None:
    server, before = ForkServer(linger_seconds=0.1), set(_children())
    streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]

    try:
        # Its stdin ends at once, and so does the node.
        _, pidfd = server.start({}, streams)
        (child,) = (pid for pid in _children() if pid not in before)
        os.close(pidfd)
        _await(lambda: not _is_alive(child))

        # The next start makes a new one.
        _, pidfd = server.start({}, streams)
        os.close(pidfd)
    finally:
        server.close()
        for stream in streams:
            os.close(stream)


def _is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _await(holds: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 20):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come about")
