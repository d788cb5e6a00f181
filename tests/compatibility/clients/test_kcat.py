"""kcat 1.7: a command with an old librdkafka.

It has no admin commands: topics come into being when it first writes to them, or are made and deleted by
somebody else while it watches. It cannot date records either, so those of the time test are somebody else's.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compatibility.clients.child import Child
from tests.compatibility.clients.client import PATIENCE_SECONDS, Client, Received, Sent, wait_until
from tests.compatibility.clients.contract import PARTITIONS, EveryClient
from tests.compatibility.clients.test_confluent_kafka import ConfluentClient
from tests.compatibility.node import Broker

KCAT = shutil.which("kcat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt-get install kcat)")


def received(line: str) -> Received:
    record = json.loads(line)
    return Received(record["partition"], record["offset"], record["ts"], record["key"], record["payload"])


class KcatMember:
    """`kcat -G`, which commits on its own, every five seconds."""

    def __init__(self, child: Child, address: str, group: str, topic: str) -> None:
        self._child = child
        self._address = address
        self._group = group
        self._topic = topic
        self._assigned: set[int] = set()
        self._positions: dict[int, int] = {}

    def poll(self) -> list[Received]:
        records = []
        for line in self._child.lines():
            if line.startswith("{"):
                records.append(received(line))
                self._positions[records[-1].partition] = records[-1].offset + 1
            elif "rebalanced" in line:
                self._rebalanced(line)
        return records

    def _rebalanced(self, line: str) -> None:
        partitions = {int(number) for number in re.findall(r" \[(\d+)\]", line)}
        if "assigned:" in line:
            self._assigned |= partitions
        else:
            assert "revoked:" in line, line
            self._assigned -= partitions

    def assigned(self) -> set[int]:
        return set(self._assigned)

    def commit(self) -> None:
        """See that its commits, which it makes by itself, have arrived."""
        asking = Consumer({"bootstrap.servers": self._address, "group.id": self._group})
        partitions = [TopicPartition(self._topic, partition) for partition in self._positions]
        committed: dict[int, int] = {}

        def ask() -> None:
            answers = asking.committed(partitions, timeout=PATIENCE_SECONDS)
            committed.update({answer.partition: answer.offset for answer in answers})

        wait_until(lambda: committed == self._positions, ask, "kcat's commits")
        asking.close()


class KcatClient:
    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = ConfluentClient(address)

    def _run(self, *arguments: str, stdin: str = "") -> str:
        command = [str(KCAT), "-b", self._address, *arguments]
        ended = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topic(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topic(topic)

    def topics(self) -> set[str]:
        return {topic["topic"] for topic in json.loads(self._run("-L", "-J"))["topics"]}

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        if any(record.timestamp_ms for record in records):
            self._admin.produce(topic, records, codec)
            return
        for partition, part in groupby(sorted(records, key=lambda r: r.partition), lambda r: r.partition):
            lines = "".join(f"{record.key}\t{record.value}\n" for record in part)
            options = ["-P", "-t", topic, "-p", str(partition), "-K", "\t", "-X", "linger.ms=50"]
            self._run(*options, "-z", codec, stdin=lines)

    @contextmanager
    def join(self, group: str, topic: str) -> Iterator[KcatMember]:
        options = [
            "auto.offset.reset=earliest",
            "heartbeat.interval.ms=300",
        ]
        settings = [word for option in options for word in ("-X", option)]
        child = Child([str(KCAT), "-b", self._address, "-J", "-u", *settings, "-G", group, topic])
        try:
            yield KcatMember(child, self._address, group, topic)
        finally:
            child.stop()

    def read_since(self, topic: str, partition: int, timestamp_ms: int, count: int) -> list[Received]:
        options = ["-C", "-t", topic, "-p", str(partition), "-o", f"s@{timestamp_ms}", "-c", str(count), "-J"]
        return [received(line) for line in self._run(*options).splitlines()]


@pytest.fixture(scope="module")
def client(broker: Broker) -> KcatClient:
    return KcatClient(broker.address)


class TestKcat(EveryClient):
    """kcat."""

    def test_a_topic_is_made_by_the_first_record(
        self, client: Client, broker: Broker, fresh: Callable[[str], str]
    ) -> None:
        topic = fresh("made-by-writing")

        client.produce(topic, [Sent("first", "key", PARTITIONS - 1)])
        with client.join(fresh("readers"), topic) as member:
            records: list[Received] = []
            wait_until(lambda: bool(records), lambda: records.extend(member.poll()), "the first record")

        assert [(record.value, record.partition) for record in records] == [("first", PARTITIONS - 1)]
        assert topic in client.topics()
