"""The examples, run as a stranger would: without arguments, with a broker or without one."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from penstock.cli.child import BrokerProcess, throw_away_broker
from tests.support.nodes import NodeProcess

EXAMPLES = Path(__file__).parents[3] / "examples"
NOBODY = "127.0.0.1:1"
needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with throw_away_broker() as child:
        yield child


def run(
    name: str,
    directory: Path,
    *arguments: str,
    bootstrap: str = NOBODY,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=directory,
        env={**environment, "PENSTOCK_BOOTSTRAP": bootstrap, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("arguments", [[], ["data"]], ids=["nowhere", "in a directory"])
def test_the_log_engine_example_reads_back_what_it_wrote(tmp_path: Path, arguments: list[str]) -> None:
    done = run("log_engine.py", tmp_path, *arguments)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "offsets 0 to 1, 0 bytes read at start",
        "0 b'en' b'hello'",
        "1 b'fr' b'bonjour'",
    ]
    assert [path.name for path in tmp_path.iterdir()] == arguments


def test_the_grpc_example_does_every_job(broker: BrokerProcess, tmp_path: Path) -> None:
    done = run("grpc_jobs.py", tmp_path, broker.grpc)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "sent 3 jobs"
    assert sorted(lines[1:]) == [
        "did resize broken.png", "did resize cat.png", "did resize dog.png", "failed resize broken.png"
    ]  # fmt: skip


def test_the_orders_example_reads_what_it_sent_as_often_as_it_is_run(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    first = run("orders.py", tmp_path, bootstrap=broker.bootstrap)
    second = run("orders.py", tmp_path, bootstrap=broker.bootstrap)

    for done in (first, second):
        assert (done.returncode, done.stderr) == (0, "")
        read = sorted(line for line in done.stdout.splitlines() if line.startswith("read "))
        assert read == ["read anna: 3 apples", "read ben: a book", "read carla: 2 chairs"]


def test_the_sql_example_has_every_order_once_as_often_as_it_is_run(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    for times in (1, 2):
        done = run("exactly_once_sql.py", tmp_path, broker.bootstrap, "orders.db")

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            f"anna: 3 apples, {times} times",
            f"ben: a book, {times} times",
            f"carla: 2 chairs, {times} times",
        ]


def test_the_mail_example_sends_tries_again_and_finishes_when_it_is_told_to_end(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    addresses = ["anna@example.org", "busy@example.org", "nobody"]
    stored = run("email_tasks.py", tmp_path, "enqueue", *addresses, bootstrap=broker.bootstrap)
    assert (stored.returncode, stored.stderr) == (0, "")
    assert len(stored.stdout.splitlines()) == len(addresses)

    environment = os.environ | {"PENSTOCK_BOOTSTRAP": broker.bootstrap}
    command = [sys.executable, str(EXAMPLES / "email_tasks.py"), "worker"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        lines = {worker.stdout.readline().rstrip() for _ in range(5)}
        worker.terminate()
        assert worker.stdout.read() == "finished what was running\n"
        assert worker.wait(60) == 0

    assert lines == {
        "sent to anna@example.org at attempt 1: Welcome",
        "sent to busy@example.org at attempt 2: Welcome",
        *(f"{address} was here" for address in addresses),
    }


@pytest.mark.parametrize(
    "name", ["orders.py", "exactly_once_sql.py", pytest.param("pipeline/submit.py", marks=needs_spark)]
)
def test_without_a_broker_one_line_says_how_to_get_one(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"no broker at {NOBODY}" in done.stderr
    assert "penstock up" in done.stderr
    assert list(tmp_path.iterdir()) == []


@needs_spark
def test_without_its_topic_the_pipeline_says_how_to_fill_it(broker: BrokerProcess, tmp_path: Path) -> None:
    done = run("pipeline/submit.py", tmp_path, bootstrap=broker.bootstrap)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "there is no topic metrics.inbound: fill it with `penstock generate`\n"


@needs_spark
def test_a_part_of_a_declarative_pipeline_says_what_runs_it(tmp_path: Path) -> None:
    done = run("pipeline/declarative/transformations/metrics.py", tmp_path)

    assert (done.returncode, done.stderr) == (
        1,
        "run it with: spark-pipelines run --spec examples/pipeline/declarative/spark-pipeline.yml\n",
    )


def test_the_websocket_example_works_and_reads_on(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node", "rest.enabled=true").start()
    try:
        address = node.ready["http"]
        created = httpx.post(f"http://{address}/v1/topics", json={"name": "example-images", "partitions": 1})
        assert created.status_code == 201, created.text
        done = run("websocket_jobs.py", tmp_path, variables={"PENSTOCK_WEBSOCKET": f"ws://{address}"})
    finally:
        node.kill()

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "enqueued 3 jobs",
        "resized cat.png at attempt 1",
        "resized dog.png at attempt 1",
        "resized emu.png at attempt 1",
        "read on from offset 0 at offset 1",
    ]
