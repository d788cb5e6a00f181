"""The clients that must not feel an attack: a producer, a consumer group, and whoever counts at the end.

    python -m benchmarks.attacks.well_behaved produce|consume|read --bootstrap B --output F

Each is a process of its own, on librdkafka. The producer sends one record every 20 ms, acks=all and
idempotent. A record's latency counts from when it *should* have been sent: a producer that is held up
does not send the next ones on time, and their wait belongs to the figures. The value of a record is
its number and that time; all processes are on one machine and read one clock.

What happens is written down a line at a time (see `ACKED` and `READ`), so that whoever watches may look
at any time, and nothing is lost when a process is ended.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

TOPIC = "well-behaved"
GROUP = "well-behaved"
PARTITIONS = 3
RECORDS_PER_SECOND = 50
# Longer than any attack: a record that was given up would hide how long it waited.
GIVE_UP_MS = 600_000
FLUSH_SECONDS = 60
_INTERVAL_NS = 1_000_000_000 // RECORDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class AckedRecord:
    """A line of the producer: `number intended_ns acked_ns`; an error has a negative time."""

    number: int
    intended_ns: int
    acked_ns: int

    @property
    def is_acked(self) -> bool:
        return self.acked_ns >= 0


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A line of a consumer: `number intended_ns received_ns partition offset`."""

    number: int
    intended_ns: int
    received_ns: int
    partition: int
    offset: int


def acked_records(path: Path) -> list[AckedRecord]:
    """What the producer has written down so far."""
    return [AckedRecord(*map(int, line.split())) for line in _whole_lines(path)]


def read_records(path: Path) -> list[ReadRecord]:
    """What a consumer has written down so far."""
    return [ReadRecord(*map(int, line.split())) for line in _whole_lines(path)]


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    # A line that is being written has no end yet.
    return text.split("\n")[:-1]


class Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, _number: int, _frame: object) -> None:
        self.is_set = True


def produce(bootstrap: str, output: TextIO) -> int:
    """Send until SIGTERM, then wait for what is under way; returns whether some were never acknowledged."""
    from confluent_kafka import Producer

    stop = Stop()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "well-behaved-producer",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": GIVE_UP_MS,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 50,
        }
    )
    start_ns = time.monotonic_ns()
    number = 0
    sent: dict[int, int] = {}

    def acked(number: int, intended_ns: int, error: Any) -> None:
        at_ns = -1 if error is not None else time.monotonic_ns()
        del sent[number]
        print(number, intended_ns, at_ns, file=output)

    while not stop.is_set:
        intended_ns = start_ns + number * _INTERVAL_NS
        while (ahead_ns := intended_ns - time.monotonic_ns()) > 0:
            producer.poll(ahead_ns / 1e9)
        sent[number] = intended_ns
        producer.produce(
            TOPIC,
            f"{number} {intended_ns}",
            key=str(number),
            on_delivery=lambda error, _message, n=number, at=intended_ns: acked(n, at, error),
        )
        number += 1
    producer.flush(FLUSH_SECONDS)
    # Whoever looks must not take them for records that were never sent.
    for late, intended_ns in sent.items():
        print(late, intended_ns, -1, file=output)
    return min(len(sent), 1)


def consume(bootstrap: str, output: TextIO) -> int:
    """Read as a member of the group until SIGTERM."""
    from confluent_kafka import Consumer

    stop = Stop()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "well-behaved-consumer",
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
        }
    )
    consumer.subscribe([TOPIC])
    while not stop.is_set:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            _write_down(output, message)
    consumer.close()
    return 0


def read(bootstrap: str, output: TextIO) -> int:
    """Read the topic from its start to its end, outside of any group."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "enable.auto.commit": False})
    ends = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)
        ends[partition] = high if high > low else 0
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    deadline = time.monotonic() + FLUSH_SECONDS
    while any(ends.values()) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None or message.error() is not None:
            continue
        _write_down(output, message)
        if message.offset() + 1 >= ends[message.partition()]:
            ends[message.partition()] = 0
    consumer.close()
    return min(sum(1 for end in ends.values() if end), 1)


def _write_down(output: TextIO, message: Any) -> None:
    number, intended_ns = message.value().decode().split()
    print(number, intended_ns, time.monotonic_ns(), message.partition(), message.offset(), file=output)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=("produce", "consume", "read"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    run = {"produce": produce, "consume": consume, "read": read}[given.part]
    with given.output.open("a", buffering=1) as output:
        return run(given.bootstrap, output)


if __name__ == "__main__":
    sys.exit(main())
