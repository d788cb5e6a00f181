"""What is left of a query whose driver was killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import BulkProducer, Endpoint, TopicAdmin
from tests.spark.exactness.processes import MARK, comes_true, command_of, kill_marked, marked
from tests.support.nodes import NodeProcess

ROOT = Path(__file__).parents[3]
# Less than the two minutes for which a reader waits for a broker that is away.
GONE_SECONDS = 40


@pytest.fixture
def own_node(tmp_path: Path) -> NodeProcess:
    return NodeProcess(tmp_path / "node").start()


def test_workers_that_wait_for_a_broker_end_when_their_driver_is_killed(
    own_node: NodeProcess, tmp_path: Path
) -> None:
    mark = f"{os.getpid()}-{tmp_path}"
    TopicAdmin(Endpoint(own_node.kafka)).create("read", 1, 1, {})
    sender = BulkProducer(Endpoint(own_node.kafka))
    sender.send("read", [b"value"] * 10)
    sender.finish()
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.source.reading_driver",
                own_node.kafka,
                "read",
                str(tmp_path),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {MARK: mark},
            cwd=ROOT,
        )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"reading\n", (tmp_path / "log").read_text()[-2_000:]

        own_node.kill()
        driver.kill()
        driver.wait()

        assert comes_true(lambda: not marked(mark), GONE_SECONDS), [command_of(one) for one in marked(mark)]
    finally:
        kill_marked(mark)
        driver.communicate()
        if own_node.is_running:
            own_node.kill()
