"""The cluster that is measured, and how."""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    BootstrapCluster,
    BrokerEndpoint,
    Command,
    CreatedTopic,
    CreateTopic,
    Fact,
    MetadataMachine,
    RegisterBroker,
    RegisteredBroker,
    UnfenceBroker,
)
from penstock.core.model import Instant, NodeId, TopicId

T = TypeVar("T")
CLUSTER = "MFbtwMBDQ-ilsrRHad1r1A"
RACKS = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Shape:
    """How many there are of everything."""

    brokers: int = 300
    topics: int = 1_000
    partitions: int = 50
    replicas: int = 3

    def registration(
        self, node_id: int, cluster_id: str = CLUSTER, *, has_peer_port: bool = True
    ) -> RegisterBroker:
        """A broker that says who it is; without a port for its peers nobody tries to reach it."""
        host = f"broker-{node_id}.cluster.example"
        listeners = (BrokerEndpoint("PLAINTEXT", host, 9092), BrokerEndpoint("PEER", host, 9093))
        return RegisterBroker(
            cluster_id,
            NodeId(node_id),
            UUID(int=1_000_000 + node_id),
            listeners if has_peer_port else listeners[:1],
            RACKS[node_id % len(RACKS)],
            SUPPORTED_FEATURES,
            fenced=True,
        )

    def creations(self) -> Iterator[CreateTopic]:
        for number in range(self.topics):
            topic_id = TopicId(UUID(int=2_000_000 + number))
            yield CreateTopic(f"topic-{number:05}", topic_id, self.partitions, self.replicas)


class Journal:
    """A machine, and every fact that it decided."""

    def __init__(self) -> None:
        self.machine = MetadataMachine()
        self.facts: list[Fact] = []

    def decide(self, command: Command) -> object:
        decision = self.machine.decide(command, Instant(0))
        self.machine.replay(decision.facts)
        self.facts.extend(decision.facts)
        return decision.reply

    def register(self, shape: Shape) -> None:
        self.decide(BootstrapCluster(CLUSTER))
        for node_id in range(1, shape.brokers + 1):
            reply = self.decide(shape.registration(node_id))
            assert isinstance(reply, RegisteredBroker), reply
            self.decide(UnfenceBroker(NodeId(node_id), reply.epoch))

    def create(self, shape: Shape) -> None:
        for command in shape.creations():
            reply = self.decide(command)
            assert isinstance(reply, CreatedTopic), reply


def cpu_ms(operation: Callable[[], T], rounds: int = 1) -> tuple[float, T]:
    """CPU milliseconds of one call, the best of so many, and what the last one answered."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        begin = time.process_time_ns()
        answer = operation()
        best = min(best, (time.process_time_ns() - begin) / 1e6)
    return best, answer
