import json
import os
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.client import (
    ConsumerOptions,
    Endpoint,
    GroupAdmin,
    ProducerOptions,
    TopicAdmin,
    TopicConsumer,
    TopicProducer,
    reach,
)

COMMAND = [sys.executable, "-m", "penstock.cli", "up"]
ANY_PORTS = [
    "--kafka",
    "127.0.0.1:0",
    "--http",
    "127.0.0.1:0",
    "--grpc",
    "127.0.0.1:0",
    "--metrics",
    "127.0.0.1:0",
]

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, errors: Path | None = None) -> "subprocess.Popen[str]":
        with ExitStack() as opened:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if errors is None else opened.enter_context(errors.open("wb")),
                text=True,
            )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def ready_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0], "not ready within a minute"
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return line


def fails(start: Start, *arguments: str) -> str:
    """Run a start that must not succeed; returns its one line."""
    process = start(*arguments)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    lines = [line for line in errors.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, errors
    return lines[0]


@pytest.fixture
def terminal() -> Iterator[None]:
    """What is started has a terminal that can end, also where the tests run under nohup.

    A process inherits that a signal is ignored, but no handler.
    """
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_node_says_in_one_line_where_it_is_and_stops_on_a_signal(
    number: signal.Signals, start: Start, tmp_path: Path
) -> None:
    process = start("--data-dir", "data", "--node-id", "7", "--json", *ANY_PORTS)

    ready = json.loads(ready_line(process))
    cluster = reach(Endpoint(ready["kafka"]))
    with urllib.request.urlopen(f"http://{ready['http']}/health", timeout=10) as health:
        status = health.status
    with urllib.request.urlopen(f"http://{ready['metrics']}/metrics", timeout=10) as page:
        metrics = page.read().decode()
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)

    assert (process.returncode, out) == (0, "")
    assert ready["event"] == "ready"
    assert (ready["node_id"], ready["pid"], ready["data_dir"]) == (7, process.pid, str(tmp_path / "data"))
    assert ready["listeners"] == {"PLAINTEXT": ready["kafka"]}
    assert list(cluster.brokers) == [7]
    assert status == 200
    assert "penstock_" in metrics


def test_a_node_under_nohup_outlives_its_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        ["nohup", *COMMAND, "--json", *ANY_PORTS],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        endpoint = Endpoint(json.loads(ready_line(process))["kafka"])

        process.send_signal(signal.SIGHUP)
        TopicAdmin(endpoint).create("after", 1, 1, {})
        process.terminate()

    assert process.returncode == 0


def test_the_ready_line_is_readable_too(start: Start) -> None:
    process = start("--data-dir", "data", *ANY_PORTS)

    line = ready_line(process)

    assert line.startswith("ready: node 1, kafka 127.0.0.1:")
    assert line.endswith(", data in data\n")
    assert " http 127.0.0.1:" in line
    assert " metrics 127.0.0.1:" in line


def test_what_was_acknowledged_is_there_after_a_restart(start: Start) -> None:
    first = start("--data-dir", "data", "--json", *ANY_PORTS)
    endpoint = Endpoint(json.loads(ready_line(first))["kafka"])
    TopicAdmin(endpoint).create("kept", 1, 1, {})
    sender = TopicProducer(endpoint, "kept", ProducerOptions())
    sender.send(b"a record")
    sender.finish()
    first.terminate()
    first.communicate(timeout=10)

    second = start("--data-dir", "data", "--json", *ANY_PORTS)
    found = TopicAdmin(Endpoint(json.loads(ready_line(second))["kafka"])).describe("kept")

    assert [one.end_offset for one in found.partitions] == [1]


def test_clients_are_sent_back_to_the_listener_they_came_from(start: Start) -> None:
    process = start(
        *("--json", *ANY_PORTS),
        *("--set", "listen.listeners=inside=plaintext://127.0.0.1:0/localhost:0"),
    )

    ready = json.loads(ready_line(process))
    (main,) = reach(Endpoint(ready["kafka"])).brokers.values()
    (inside,) = reach(Endpoint(ready["listeners"]["inside"])).brokers.values()

    assert list(ready["listeners"]) == ["PLAINTEXT", "inside"]
    assert f"{main.host}:{main.port}" == ready["kafka"]
    assert (inside.host, inside.port) == ("localhost", int(ready["listeners"]["inside"].split(":")[1]))


def test_a_second_start_on_the_same_directory_is_refused_in_one_line(start: Start) -> None:
    first = start("--data-dir", "data", *ANY_PORTS)
    ready_line(first)

    line = fails(start, "--data-dir", "data", *ANY_PORTS)

    assert "locked" in line
    assert str(first.pid) in line
    assert first.poll() is None


@pytest.mark.parametrize("flag", ["--kafka", "--http", "--grpc", "--metrics"])
def test_a_port_that_is_taken_is_named_with_its_flag_and_nothing_is_left_behind(
    start: Start, flag: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        line = fails(start, *ANY_PORTS, flag, address)

    assert line == (
        f"penstock: cannot listen on {address}: Address already in use: stop what listens there, "
        f"or choose another with {flag} (port 0 is any free one)"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kafka", "9092"], "penstock: listen.kafka: '9092' (--kafka) is not allowed"),
        (["--set", "topics.partition=3"], "penstock: unknown setting topics.partition (--set)"),
        (["--config", "nowhere.yaml"], "penstock: nowhere.yaml: No such file or directory"),
        (["--set", "listen.protocol=SSL"], "penstock: a listener with SSL needs security.tls.certificate"),
        (
            ["--set", "listen.protocol=SASL_PLAINTEXT"],
            "penstock: listen.protocol SASL_PLAINTEXT: REST, WebSocket and gRPC ask who is calling with",
        ),
        (
            ["--set", "security.enabled=true", "--set", "listen.peer=0.0.0.0:0"],
            "penstock: security.enabled: listen.peer (0.0.0.0:0) is reachable from other machines",
        ),
        (
            ["--set", "security.tls.certificate=nowhere.pem", "--set", "security.tls.key=nowhere.key"],
            "penstock: nowhere.key: No such file or directory",
        ),
    ],
)
def test_what_cannot_be_started_is_said_in_one_line(
    arguments: list[str], complaint: str, start: Start, tmp_path: Path
) -> None:
    line = fails(start, *ANY_PORTS, *arguments)

    assert line.startswith(complaint)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data_dir", "complaint"),
    [
        ("a-file", "{root}/a-file: it is a file"),
        ("a-file/below", "{root}/a-file/below: {root}/a-file is a file"),
        (f"new/{'x' * 300}", f"{{root}}/new/{'x' * 300}: file name too long"),
    ],
    ids=["a file", "below a file", "a name that cannot be"],
)
def test_a_data_directory_that_cannot_be_used_is_named_and_nothing_is_left_behind(
    start: Start, data_dir: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "a-file").write_text("not ours")

    line = fails(start, *ANY_PORTS, "--data-dir", data_dir)

    assert line == (
        f"penstock: cannot use the data directory {complaint.format(root=tmp_path)}: "
        "choose another with --data-dir"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]
    assert (tmp_path / "a-file").read_text() == "not ours"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_without_permission_says_where_it_is_missing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)

    line = fails(start, *ANY_PORTS, "--data-dir", "closed/data")

    assert f"{tmp_path}/closed/data: no permission to write to {tmp_path}/closed: choose" in line


def test_the_directory_of_another_node_is_named(start: Start, tmp_path: Path) -> None:
    first = start("--data-dir", "data", *ANY_PORTS)
    ready_line(first)
    first.terminate()
    first.communicate(timeout=30)

    line = fails(start, "--data-dir", "data", "--node-id", "2", *ANY_PORTS)

    assert "belongs to node 1, but this node's id is 2" in line
    assert str(tmp_path / "data") in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_one_line(number: signal.Signals, start: Start, tmp_path: Path) -> None:
    process = start("--json", *ANY_PORTS, errors=tmp_path / "errors")
    endpoint = Endpoint(json.loads(ready_line(process))["kafka"])
    TopicAdmin(endpoint).create("t", 1, 1, {})
    with TopicConsumer(endpoint, "t", ConsumerOptions(group="g")) as reader:
        assert list(reader.batches()) == []
    GroupAdmin(endpoint).describe("g")  # all coordinators are loaded
    before = len((tmp_path / "errors").read_text().splitlines())

    process.send_signal(number)
    process.communicate(timeout=30)

    lines = (tmp_path / "errors").read_text().splitlines()[before:]
    assert [json.loads(line)["event"] for line in lines] == ["node.stopped"]


def test_a_listener_on_every_interface_is_warned_about(start: Start) -> None:
    process = start(
        "--kafka", ":0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"
    )

    ready_line(process)
    process.terminate()
    _, errors = process.communicate(timeout=10)

    assert errors.startswith("warning: listen.kafka (:0): reachable from other machines")


def test_flags_win_over_set_which_wins_over_the_environment(
    start: Start, environment: dict[str, str]
) -> None:
    environment["PENSTOCK_NODE_ID"] = "3"
    environment["PENSTOCK_TOPICS_PARTITIONS"] = "3"

    process = start(
        *("--json", *ANY_PORTS, "--node-id", "5"),
        *("--set", "node.id=4", "--set", "topics.partitions=4"),
    )
    ready = json.loads(ready_line(process))
    endpoint = Endpoint(ready["kafka"])
    TopicAdmin(endpoint).create("defaults", -1, -1, {})

    assert ready["node_id"] == 5
    assert [one.partitions for one in TopicAdmin(endpoint).list()] == [4]
