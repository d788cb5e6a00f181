"""Penstock and its peer, side by side, with the same promise about the disk."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum

from benchmarks.peers.kafka import kafka_node
from benchmarks.peers.maven import PeerUnavailable
from penstock.cli.bench.scenarios import BenchTarget, target
from penstock.client import ClientError, Endpoint, TopicAdmin

SETTLE_SECONDS = 30


class Promise(Enum):
    """When a broker acknowledges a record."""

    DEFAULT = "each with its defaults: Penstock syncs, Kafka does not"
    CACHED = "both leave the disk to the operating system"
    DURABLE = "both sync before they acknowledge"


@dataclass(frozen=True, slots=True)
class Peer(BenchTarget):
    """A broker that answers CreateTopics before every partition of the topic takes records."""

    @contextmanager
    def topic(self, partitions: int = 1, configs: dict[str, str] | None = None) -> Iterator[str]:
        with BenchTarget.topic(self, partitions, configs) as name:
            self.await_served(name)
            yield name

    def await_served(self, topic: str) -> None:
        """Wait until every partition takes records."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while not self._serves(topic):
            if time.monotonic() > deadline:
                raise ClientError(f"{topic}: not served within {SETTLE_SECONDS} s")
            time.sleep(0.1)

    def _serves(self, topic: str) -> bool:
        try:
            partitions = TopicAdmin(self.endpoint).describe(topic).partitions
        except ClientError:
            return False
        return all(one.end_offset is not None for one in partitions)


_PENSTOCK = {Promise.CACHED: ["storage.fsync.mode=none"]}
_KAFKA = {Promise.DURABLE: ["log.flush.interval.messages=1"]}


@contextmanager
def brokers(promise: Promise, peer: str, directory: str | None) -> Iterator[list[BenchTarget]]:
    """Start them, Penstock first; a peer that is not to be had is left out, with a line that says why."""
    with ExitStack() as stack:
        found = [stack.enter_context(target(None, None, _PENSTOCK.get(promise, ()), directory))]
        if peer == "kafka":
            try:
                node = stack.enter_context(kafka_node(directory, _KAFKA.get(promise, ())))
            except PeerUnavailable as why:
                print(f"without Kafka: {why}", file=sys.stderr)
            else:
                found.append(Peer("kafka", Endpoint(node.bootstrap), node.pid))
        yield found
