"""A node that is killed with SIGKILL again and again under load, and what its clients saw.

    python -m tests.cluster.kill_rounds --rounds 50

Three idempotent producers write unique values to every partition of a topic while the node is
killed at random moments and started again on the same directory and port. At the end every
partition is read from start to end and judged by the same checker as in the simulator.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.sim.checkers.log import LogHistory, check_log
from tests.support.nodes import NodeProcess

TOPIC = "killed"
PARTITIONS = 3
PRODUCERS = 3
SECONDS_MAX = 60.0
# The client complains about every refused connection, and there are many.
QUIET = {"log_level": 0}


@dataclass
class Outcome:
    """What the rounds showed."""

    rounds: int
    sent: int = 0
    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)
    start_seconds: list[float] = field(default_factory=list)


class Load:
    """Producers whose every value is written down before it is sent."""

    def __init__(self, address: str, outcome: Outcome) -> None:
        self.histories = {partition: LogHistory() for partition in range(PARTITIONS)}
        self._outcome = outcome
        self._next = 0
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": address,
                    "enable.idempotence": True,
                    "linger.ms": 2,
                    "message.timeout.ms": 120_000,
                    "retry.backoff.ms": 50,
                    "retry.backoff.max.ms": 200,
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 100,
                    **QUIET,
                }
            )
            for _ in range(PRODUCERS)
        ]

    def send(self, count: int) -> None:
        for _ in range(count):
            number, self._next = self._next, self._next + 1
            partition, writer = number % PARTITIONS, number % PRODUCERS
            value = b"%d/%d" % (writer, number)
            self.histories[partition].sent.setdefault(str(writer), []).append(value)
            self._outcome.sent += 1
            self._producers[writer].produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
        for producer in self._producers:
            producer.poll(0)

    def send_until_acknowledged(self, count: int, luck: random.Random) -> None:
        """Send until so many more are acknowledged, so that the kill hits a node at work."""
        goal = self._outcome.acknowledged + count
        deadline = time.monotonic() + SECONDS_MAX
        while self._outcome.acknowledged < goal and time.monotonic() < deadline:
            self.send(luck.randint(1, 20))
            for producer in self._producers:
                producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._outcome.failed.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.histories[partition].acknowledged[value] = offset
        self._outcome.acknowledged += 1

    def finish(self) -> None:
        for producer in self._producers:
            left = producer.flush(SECONDS_MAX)
            if left:
                self._outcome.anomalies.append(f"stuck: {left} records were never acknowledged")


def read_everything(address: str) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of every partition, from start to end."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "judge", "enable.auto.commit": False, **QUIET}
    )
    found: dict[int, list[tuple[int, bytes]]] = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10)
        consumer.assign([TopicPartition(TOPIC, partition, low)])
        rows = found[partition] = []
        while len(rows) < high - low:
            messages = consumer.consume(min(5000, high - low - len(rows)), timeout=10)
            assert messages, f"partition {partition} ends at {len(rows)} of {high}"
            for message in messages:
                assert message.error() is None, message.error()
                rows.append((message.offset() or 0, message.value() or b""))
    consumer.close()
    return found


def run_rounds(directory: Path, rounds: int, seed: int, progress: Callable[[str], None]) -> Outcome:
    """Kill the node `rounds` times under load; bounded by count."""
    luck, outcome, node = random.Random(seed), Outcome(rounds), NodeProcess(directory)
    node.start()
    try:
        admin = AdminClient({"bootstrap.servers": node.kafka, **QUIET})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=10)
        load = Load(node.kafka, outcome)
        for number in range(rounds):
            load.send_until_acknowledged(luck.randint(1, 2000), luck)
            node.kill()
            load.send(20)
            began = time.perf_counter()
            node.start()
            outcome.start_seconds.append(time.perf_counter() - began)
            progress(f"round {number + 1}: {outcome.acknowledged} of {outcome.sent} acknowledged")
        load.finish()
        for partition, rows in read_everything(node.kafka).items():
            outcome.anomalies += check_log(load.histories[partition], rows)
    finally:
        node.stop()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-kill-") as directory:
        outcome = run_rounds(Path(directory) / "data", arguments.rounds, arguments.seed, print)
    starts = sorted(outcome.start_seconds)
    print(f"{outcome.rounds} kills, {outcome.sent} records sent, {outcome.acknowledged} acknowledged")
    print(f"restart p50 {starts[len(starts) // 2]:.2f} s, max {starts[-1]:.2f} s")
    print("\n".join(outcome.anomalies[:20] or ["nothing lost, doubled, moved or out of order"]))
    return 1 if outcome.anomalies or outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
