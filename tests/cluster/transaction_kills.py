"""Processes killed under consume-transform-produce, and what readers of committed records see.

    python -m tests.cluster.transaction_kills --kills 100 [--seed N] [--copiers librdkafka|java|streams]

A producer writes numbers to a topic of three nodes; two copiers, processes of their own, copy them to
another topic in transactions, with their positions in the source. Nodes and copiers are killed with
SIGKILL at random moments and started again. At the end every number must be in the copy exactly once,
and nothing may keep the last stable offset back.

The copiers are `tests.cluster.copier`, or TransactionalMessageCopier of Kafka's system tests, or a program
on Kafka Streams with exactly_once_v2, which counts the numbers by their last digit: then each count must be
in the copy exactly once.
"""

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.cluster.load import QUIET
from tests.cluster.stage import create_topic
from tests.compatibility.clients import java_programs
from tests.support.clusters import ClusterProcesses, cluster_of, until

SOURCE, SINK, GROUP = "source", "sink", "copiers"
PARTITIONS = 3
COPIERS = 2
CopierCommand = Callable[[str], list[str]]
RATE = 100
CATCH_UP_SECONDS = 180.0
SETTINGS = ("groups.offsets_partitions=3", "groups.initial_rebalance_delay_ms=0")


@dataclass
class Outcome:
    """What the kills showed."""

    kills: Counter[str] = field(default_factory=Counter)
    fed: int = 0
    copied: int = 0
    restarts: int = 0
    anomalies: list[str] = field(default_factory=list)


class Feeder:
    """Writes numbers to the source, and knows which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []
        self._ends = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.max.ms": 200,
                **QUIET,
            }
        )
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    def _feed(self) -> None:
        number = 0
        while not self._ends.wait(1 / RATE):
            self._producer.produce(
                SOURCE, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))

    def finish(self) -> None:
        self._ends.set()
        self._thread.join()
        left = self._producer.flush(CATCH_UP_SECONDS)
        assert not left, f"{left} records were never acknowledged"


def copier_command(kind: str, bootstrap: str, root: Path) -> CopierCommand:
    """The program that copies."""
    usual = [bootstrap, SOURCE, SINK, GROUP]
    if kind == "librdkafka":
        return lambda name: [sys.executable, "-m", "tests.cluster.copier", *usual, name]
    if kind == "streams":
        count = java_programs.command(root, "WordCount")
        return lambda name: [*count, *usual, name, str(root)]
    copier = java_programs.launch([], "org.apache.kafka.tools.TransactionalMessageCopier")
    copier += ["--broker-list", bootstrap, "--input-topic", SOURCE, "--input-partition", "-1"]
    copier += ["--output-topic", SINK, "--consumer-group", GROUP, "--group-mode", "--use-group-metadata"]
    copier += ["--transaction-size", "50", "--transaction-timeout", "10000", "--enable-random-aborts"]
    return lambda name: [*copier, "--transactional-id", name]


class Copiers:
    """The copying processes; one that ended is started again when it is looked at."""

    def __init__(self, command: CopierCommand, said: Path) -> None:
        """`said` is the file for what they print."""
        self.restarts = 0
        self._command = command
        self._said = said
        self._running = {number: self._start(number) for number in range(COPIERS)}

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        with self._said.open("ab") as said:
            return subprocess.Popen(self._command(f"copier-{number}"), stdout=said, stderr=said)

    def kill(self, number: int) -> None:
        self._running[number].kill()

    def look(self) -> None:
        for number, process in self._running.items():
            if process.poll() is not None:
                self.restarts += 1
                self._running[number] = self._start(number)

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


def run(root: Path, kills: int, luck: random.Random, kind: str = "librdkafka") -> Outcome:
    outcome = Outcome()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(cluster_of(root, *SETTINGS))
        create_topic(cluster, SOURCE, PARTITIONS)
        create_topic(cluster, SINK, PARTITIONS)
        feeder = Feeder(cluster.bootstrap)
        copiers = Copiers(copier_command(kind, cluster.bootstrap, root), root / "copiers.log")
        stack.callback(copiers.close)
        try:
            until(lambda: any(_positions(cluster)), "the first transaction", CATCH_UP_SECONDS)
            for _ in range(kills):
                _kill_one(cluster, copiers, luck, outcome)
        finally:
            feeder.finish()
        outcome.fed = feeder.acknowledged
        outcome.anomalies += feeder.failed
        _await_copies(cluster, copiers)
        if kind == "streams":
            # Between the source and the counts there is a topic by words.
            until(
                lambda: len(_read_committed(cluster)) >= outcome.fed,
                f"{outcome.fed} counts",
                CATCH_UP_SECONDS,
            )
        outcome.restarts = copiers.restarts
        copiers.close()
        _judge(cluster, outcome, kind)
    return outcome


def _kill_one(cluster: ClusterProcesses, copiers: Copiers, luck: random.Random, outcome: Outcome) -> None:
    time.sleep(luck.uniform(0.0, 1.0))
    copiers.look()
    if luck.random() < 0.3:
        copiers.kill(luck.randrange(COPIERS))
        outcome.kills["copier"] += 1
        return
    number = luck.choice(cluster.running)
    cluster.nodes[number].kill()
    outcome.kills["node"] += 1
    if luck.random() < 0.3:
        # At the same time, so that a new producer meets a coordinator that is not there yet.
        copiers.kill(luck.randrange(COPIERS))
        outcome.kills["copier"] += 1
    time.sleep(luck.uniform(0.0, 2.0))
    copiers.look()
    cluster.nodes[number].start()
    # Two of three must have what is acknowledged: the next may be killed when all have it.
    cluster.await_in_sync(SINK, CATCH_UP_SECONDS)
    cluster.await_in_sync(SOURCE, CATCH_UP_SECONDS)
    cluster.await_in_sync("__transaction_state", CATCH_UP_SECONDS)


def _positions(cluster: ClusterProcesses) -> list[int]:
    """What the group has committed, behind the first record."""
    return [position.offset for position in _committed(cluster) if position.offset > 0]


def _committed(cluster: ClusterProcesses) -> list[TopicPartition]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, **QUIET})
    try:
        asked = [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS)]
        found: list[TopicPartition] = consumer.committed(asked, 10)
        return found
    except KafkaException:
        return []
    finally:
        consumer.close()


def _await_copies(cluster: ClusterProcesses, copiers: Copiers) -> None:
    ends = _ends(cluster, SOURCE)

    def all_copied() -> bool:
        copiers.look()
        found = {position.partition: position.offset for position in _committed(cluster)}
        return found == ends

    until(all_copied, f"the group to be at {ends}", CATCH_UP_SECONDS)


def _ends(cluster: ClusterProcesses, topic: str, isolation: str = "read_uncommitted") -> dict[int, int]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "judge", "isolation.level": isolation, **QUIET}
    )
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)[1]
            for partition in range(PARTITIONS)
        }
    finally:
        consumer.close()


def _judge(cluster: ClusterProcesses, outcome: Outcome, kind: str) -> None:
    stable, ends = _ends(cluster, SINK, "read_committed"), _ends(cluster, SINK)
    if stable != ends:
        outcome.anomalies.append(f"the last stable offsets {stable} are below the ends {ends}")
    found = Counter(_read_committed(cluster))
    outcome.copied = found.total()
    expected = {b"%d" % number for number in range(outcome.fed)}
    if kind == "streams":
        # The counts of each last digit, from 1 on.
        expected = {b"%d=%d" % (number % 10, 1 + number // 10) for number in range(outcome.fed)}
    for value in sorted(expected - found.keys()):
        outcome.anomalies.append(f"lost: {value!r}")
    for value, times in found.items():
        if value not in expected:
            outcome.anomalies.append(f"never written: {value!r}")
        if times > 1:
            outcome.anomalies.append(f"{times} times: {value!r}")


def _read_committed(cluster: ClusterProcesses) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(SINK, partition, 0) for partition in range(PARTITIONS)])
    values: list[bytes] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {at_end} were read to their ends"
        for message in consumer.consume(1_000, 1.0):
            if message.error() is not None:
                at_end.add(message.partition())
            else:
                values.append(message.value())
    consumer.close()
    return values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--copiers", choices=("librdkafka", "java", "streams"), default="librdkafka")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-kills-") as root:
        outcome = run(Path(root), asked.kills, random.Random(asked.seed), asked.copiers)
    print(
        f"{outcome.kills.total()} kills ({dict(outcome.kills)}), {outcome.fed} records written, "
        f"{outcome.copied} copied, {outcome.restarts} copiers started again, "
        f"{len(outcome.anomalies)} anomalies"
    )
    for anomaly in outcome.anomalies[:20]:
        print(f"  {anomaly}")
    return 1 if outcome.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
