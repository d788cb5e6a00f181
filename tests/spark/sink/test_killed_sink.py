"""The driver of a sink and its broker, killed: every record counts once."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from penstock.client import ConsumerOptions, Endpoint, TopicAdmin, TopicConsumer
from tests.spark.sink.sink_driver import ROWS, TASKS
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

ROOT = Path(__file__).parents[3]
BATCHES = 24
KILLS = [(1, "task"), (2, "written"), (3, "committed"), (4, "task"), (4, "committed")]
BROKER_AT = (8, 14)
TOPIC = "out"


def start(node: NodeProcess, checkpoint: Path, *end: object) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.spark.sink.sink_driver",
        node.kafka,
        TOPIC,
        checkpoint,
        BATCHES,
        *end,
    ]
    return subprocess.Popen(list(map(str, command)), cwd=ROOT)


def test_every_record_counts_once_when_driver_and_broker_are_killed(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node").start()
    checkpoint = tmp_path / "checkpoint"
    try:
        TopicAdmin(Endpoint(node.kafka)).create(TOPIC, 2, 1, {})

        for kill in KILLS:
            assert start(node, checkpoint, *kill).wait(120) == -signal.SIGKILL, kill
        driver = start(node, checkpoint)
        for batch in BROKER_AT:
            until(lambda batch=batch: int(checkpoint.read_text()) >= batch, f"batch {batch}", 120)  # type: ignore[misc]
            node.kill()
            node.start()
        assert driver.wait(200) == 0

        with TopicConsumer(Endpoint(node.kafka), TOPIC, ConsumerOptions(committed_only=True)) as reader:
            found = Counter(read.value for batch in reader.batches() for read in batch)
    finally:
        if node.is_running:
            node.kill()
    assert found == Counter(
        b"%d-%d-%d" % (batch, task, row)
        for batch in range(BATCHES)
        for task in range(TASKS)
        for row in range(ROWS)
    )
