"""The nodes that are compared: this tree's, another tree's, and Kafka's."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from benchmarks.cluster.nodes import nodes
from benchmarks.macro.brokers import Peer
from benchmarks.peers.kafka import kafka_nodes
from benchmarks.peers.maven import PeerUnavailable
from benchmarks.side_by_side import KAFKA, Results, note
from penstock.cli.bench.report import Figures
from penstock.cli.bench.scenarios import ResourceUsage, usage_of
from penstock.client import ClientError, Endpoint

EVERY = "storage.fsync.mode=every"
NONE = "storage.fsync.mode=none"

SideT = TypeVar("SideT")


@dataclass(frozen=True, slots=True)
class Cluster(Peer):
    """The nodes of one side; their usage is that of all of them, helpers included."""

    pids: tuple[int, ...] = ()

    def usage(self) -> ResourceUsage:
        each = [usage_of(pid) for pid in self.pids]
        return ResourceUsage(sum(one.cpu_ns for one in each), sum(one.rss_bytes for one in each))


@dataclass(slots=True)
class Comparison:
    """One run: who is compared, for how long, and what was found."""

    trees: Mapping[str, Path]
    with_kafka: bool
    rounds: int
    seconds: float
    kills: int = 0
    directory: str | None = None
    results: Results = field(default_factory=dict)
    # The machine's load average at each round of a measure.
    loads: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def clusters(
        self,
        setting: str,
        count: int = 1,
        *,
        with_kafka: bool = False,
        kafka_settings: Sequence[str] = (),
    ) -> Iterator[dict[str, Cluster]]:
        """A cluster of so many nodes of each tree, and of Kafka if it is wanted and to be had."""
        with ExitStack() as stack:
            found = {}
            for name, tree in self.trees.items():
                started = stack.enter_context(nodes(count, self.directory, [setting], tree))
                found[name] = Cluster(name, Endpoint(started.bootstrap), replication=count, pids=started.pids)
            if with_kafka and self.with_kafka:
                try:
                    theirs = stack.enter_context(kafka_nodes(count, self.directory, kafka_settings))
                except PeerUnavailable as why:
                    self.without_kafka(why)
                else:
                    found[KAFKA] = Cluster(
                        KAFKA, Endpoint(theirs.bootstrap), replication=count, pids=theirs.pids
                    )
            yield found

    def without_kafka(self, why: PeerUnavailable) -> None:
        """Go on without Kafka, also in what follows."""
        print(f"without Kafka: {why}", file=sys.stderr)
        self.with_kafka = False

    def take(
        self,
        measure: str,
        sides: Mapping[str, SideT],
        load: Callable[[SideT], Figures],
        rounds: range | None = None,
    ) -> None:
        """Put the load on each side in turn, round by round; who is first changes with the round."""
        for number in range(self.rounds) if rounds is None else rounds:
            for name in _in_turn(list(sides), number):
                average = round(os.getloadavg()[0], 1)
                print(f"{measure}, round {number + 1}: {name} (load {average})", file=sys.stderr, flush=True)
                self.loads.setdefault(measure, []).append(average)
                # What the last measurement left to be written must not be written during this one.
                os.sync()
                try:
                    note(self.results, measure, name, load(sides[name]))
                except ClientError as error:
                    self.failures.append(f"{measure}: {name}: {error}")
                    print(f"failed: {self.failures[-1]}", file=sys.stderr, flush=True)


def _in_turn(names: Sequence[str], number: int) -> list[str]:
    start = number % len(names)
    return [*names[start:], *names[:start]]


@dataclass(frozen=True, slots=True)
class BenchTopic:
    """A topic that is kept for several measurements."""

    cluster: Cluster
    name: str
    partitions: int


@contextmanager
def topics(sides: Mapping[str, Cluster], partitions: int) -> Iterator[dict[str, BenchTopic]]:
    """A topic on each side."""
    with ExitStack() as stack:
        yield {
            name: BenchTopic(side, stack.enter_context(side.topic(partitions)), partitions)
            for name, side in sides.items()
        }


@dataclass(frozen=True, slots=True)
class Modes(Generic[SideT]):
    """One tree with and without a sync before every acknowledgement."""

    every: SideT
    none: SideT

    def both(self, load: Callable[[SideT], Figures]) -> Figures:
        """The figures of both, one right after the other, and the ratio of their CPU."""
        every, none = load(self.every), load(self.none)
        figures = {f"every: {name}": value for name, value in every.items()}
        figures |= {f"none: {name}": value for name, value in none.items()}
        return {**figures, "every/none: cpu": round(every["cpu_us"] / none["cpu_us"], 2)}


def modes(every: Mapping[str, SideT], none: Mapping[str, SideT]) -> dict[str, Modes[SideT]]:
    """Each side's two modes together."""
    return {name: Modes(every[name], none[name]) for name in every}
