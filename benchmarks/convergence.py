"""How long a group of 20 members takes to share 100 partitions anew after a join, a leave and a kill.

python -m benchmarks.convergence [--rounds N] [--kafka] [--json FILE]

The same group of librdkafka's consumers, with the consumer protocol (KIP-848) and with the classic one
(cooperative-sticky), heartbeats every 250 ms; with `--kafka`, against Apache Kafka in the same run.

    join    from subscribe() of the twentieth member to every partition assigned, evenly
    leave   from the start of its close()
    kill    from SIGKILL of its process; the session timeout, which must pass first, is taken off

`stopped` counts partitions that a member was told to give up although it has them in the end: those of
members that keep their partitions should never stop. Timing depends on the machine: compare by ratio.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.cluster.nodes import nodes
from benchmarks.peers.kafka import kafka_node
from benchmarks.peers.maven import PeerUnavailable
from penstock.client import Endpoint, TopicAdmin
from penstock.client.endpoint import opened

MEMBERS, PARTITIONS = 20, 100
HEARTBEAT_MS = 250
SESSION_MS = CLASSIC_SESSION_MS = 6_000
SECONDS_MAX = 60.0
ROUNDS = 10
NEW, CLASSIC = "consumer", "classic"
PENSTOCK = (f"groups.heartbeat_interval_ms={HEARTBEAT_MS}", f"groups.session_timeout_ms={SESSION_MS}")
KAFKA = (
    f"group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}",
    "group.consumer.min.heartbeat.interval.ms=100",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    "group.consumer.min.session.timeout.ms=1000",
)


class NoBalance(Exception):
    """The members do not come to share the partitions."""


class GroupOf(NamedTuple):
    """Where the group is, and how its members speak."""

    bootstrap: str
    topic: str
    group: str
    protocol: str

    @property
    def session_ms(self) -> int:
        return SESSION_MS if self.protocol == NEW else CLASSIC_SESSION_MS

    def settings(self) -> dict[str, Any]:
        common = {"group_id": self.group, "enable_auto_commit": False, "auto_offset_reset": "latest"}
        spoken: dict[str, Any] = {"group_protocol": self.protocol}
        if self.protocol == CLASSIC:
            spoken |= {
                "partition_assignment_strategy": "cooperative-sticky",
                "heartbeat_interval_ms": HEARTBEAT_MS,
                "session_timeout_ms": CLASSIC_SESSION_MS,
            }
        return Endpoint(self.bootstrap).settings(**common, **spoken)


class Member:
    """A consumer that remembers what it was told to give up."""

    def __init__(self, group: GroupOf) -> None:
        from confluent_kafka import Consumer

        self._consumer: Any = opened(Consumer, group.settings())
        self.revoked: list[int] = []
        self._consumer.subscribe([group.topic], on_revoke=self._on_revoke)

    def poll(self) -> None:
        self._consumer.poll(0)

    def partitions(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()

    def _on_revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self.revoked += [one.partition for one in partitions]
        consumer.incremental_unassign(partitions)


def _await(members: Sequence[Member], is_done: Callable[[list[set[int]]], bool]) -> None:
    deadline = time.perf_counter() + SECONDS_MAX
    while True:
        for member in members:
            member.poll()
        held = [member.partitions() for member in members]
        if is_done(held):
            return
        if time.perf_counter() > deadline:
            raise NoBalance(f"no balance within {SECONDS_MAX:.0f} s: {[len(each) for each in held]}")
        time.sleep(0.002)


def _shared(held: list[set[int]]) -> bool:
    """Every partition has one reader, and nobody has more than one partition more than another."""
    sizes = [len(each) for each in held]
    return sum(sizes) == PARTITIONS == len(set().union(*held)) and max(sizes) - min(sizes) <= 1


def _stopped(members: Sequence[Member]) -> int:
    stopped = sum(len(set(member.revoked) & member.partitions()) for member in members)
    for member in members:
        member.revoked.clear()
    return stopped


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1_000


class Figures(NamedTuple):
    """Times in milliseconds, by what happened."""

    join: list[float]
    leave: list[float]
    kill: list[float]
    stopped: list[int]


def measure(group: GroupOf, rounds: int) -> Figures:
    figures = Figures([], [], [], [])
    members = [Member(group) for _ in range(MEMBERS - 1)]
    try:
        _await(members, _shared)
        for member in members:
            member.revoked.clear()
        for number in range(rounds):
            began = time.perf_counter()
            last = Member(group)
            _await([*members, last], _shared)
            figures.join.append(_since(began))
            figures.stopped.append(_stopped([*members, last]))
            began = time.perf_counter()
            last.close()
            _await(members, _shared)
            figures.leave.append(_since(began))
            figures.stopped.append(_stopped(members))
            if number % 3 == 0:
                figures.kill.append(_kill(group, members))
                figures.stopped.append(_stopped(members))
    finally:
        for member in members:
            member.close()
    return figures


def _kill(group: GroupOf, members: Sequence[Member]) -> float:
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.convergence", "--member", json.dumps(list(group))],
        stderr=subprocess.DEVNULL,
    )
    try:
        # The child has its share when the others have given it up.
        _await(members, lambda held: sum(map(len, held)) <= PARTITIONS - PARTITIONS // MEMBERS)
        _stopped(members)
        # Its last heartbeat is a fraction of an interval old.
        child.send_signal(signal.SIGKILL)
        began = time.perf_counter()
        _await(members, _shared)
        return max(0.0, _since(began) - group.session_ms)
    finally:
        child.kill()
        child.wait()


def _live(group: GroupOf) -> None:
    member = Member(group)
    while True:
        member.poll()
        time.sleep(0.01)


@contextmanager
def brokers(with_kafka: bool) -> Iterator[dict[str, str]]:
    with nodes(1, settings=PENSTOCK) as ours:
        if not with_kafka:
            yield {"penstock": ours.bootstrap}
            return
        try:
            with kafka_node(settings=KAFKA) as theirs:
                yield {"penstock": ours.bootstrap, f"kafka {theirs.version}": theirs.bootstrap}
        except PeerUnavailable as why:
            sys.stderr.write(f"no Kafka here: {why}\n")
            yield {"penstock": ours.bootstrap}


def _summary(times: Sequence[float]) -> dict[str, int]:
    ordered = sorted(times)
    return {"p50": round(median(ordered)), "max": round(ordered[-1]), "rounds": len(ordered)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka in the same run")
    parser.add_argument("--json", type=Path, help="where the figures are kept")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        _live(GroupOf(*json.loads(arguments.member)))
    rows = []
    with brokers(arguments.kafka) as found:
        for name, bootstrap in found.items():
            for protocol in (NEW, CLASSIC):
                topic = f"convergence-{os.urandom(3).hex()}"
                TopicAdmin(Endpoint(bootstrap)).create(topic, PARTITIONS, 1, {})
                try:
                    figures = measure(GroupOf(bootstrap, topic, topic, protocol), arguments.rounds)
                except NoBalance as why:
                    sys.stderr.write(f"{name}, {protocol}: {why}\n")
                    continue
                row = {
                    "broker": name,
                    "protocol": protocol,
                    "join_ms": _summary(figures.join),
                    "leave_ms": _summary(figures.leave),
                    "kill_after_session_ms": _summary(figures.kill),
                    "stopped": sum(figures.stopped),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
