"""Members of a cluster and nothing else, in virtual time, with an account of who computes how long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.broker.cluster import (
    BrokerRegistration,
    BrokerSessionOptions,
    ClusterMember,
    ClusterOptions,
    QuorumStore,
    Voter,
)
from penstock.core.metadata import Command, MetadataImage, Reply
from penstock.core.model import MILLISECOND, SECOND, BrokerEpoch, NodeId
from penstock.runtime import Address, Callback, Runtime
from penstock.sim import World
from penstock.sim.incarnation import Incarnation
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk

PORT = 7000
VOTERS = (1, 2, 3)


class Meter:
    """CPU nanoseconds per node: every callback of a simulated node passes here."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, int] = {}
        deliver = Incarnation.deliver

        def metered(life: Incarnation, *delivery: Any) -> None:
            with self.charging(life.name):
                deliver(life, *delivery)

        setattr(Incarnation, "deliver", metered)  # noqa: B010 - so that the type checker lets it pass

    @contextmanager
    def charging(self, name: str) -> Iterator[None]:
        """What is done meanwhile is done by this node."""
        begin = time.process_time_ns()
        yield
        self.spent_ns[name] = self.spent_ns.get(name, 0) + time.process_time_ns() - begin

    def take(self) -> dict[str, int]:
        spent, self.spent_ns = self.spent_ns, {}
        return spent


class Program:
    """One life of a member: it registers, and goes live as if its logs were open."""

    def __init__(self, runtime: Runtime, disk: Disk, number: int, members: "Members") -> None:
        machine = members.world.nodes[name_of(number)]
        directory = DataDirectory.open(disk, machine.identity.directory_id)
        self.is_live = False
        self.member = ClusterMember(
            runtime,
            QuorumStore(disk, disk, GroupCommit(runtime.sync)),
            directory,
            ClusterOptions(
                BrokerRegistration(NodeId(number), ()),
                Address(name_of(number), PORT),
                members.voters,
                sessions=members.sessions,
            ),
        )
        members.lives[name_of(number)] = self
        self.member.start(self._registered)

    def _registered(self, epoch: BrokerEpoch | None) -> None:
        assert epoch is not None
        self.member.go_live(self._live)

    def _live(self) -> None:
        self.is_live = True

    def stop(self, done: Callback) -> None:
        self.member.close()
        done()


class Members:
    """The machines n1, n2 and so on; the first three vote."""

    def __init__(self, meter: Meter, sessions: BrokerSessionOptions | None = None) -> None:
        self.world = World(1)
        self.meter = meter
        self.sessions = sessions or BrokerSessionOptions()
        self.voters = tuple(Voter(NodeId(number), Address(name_of(number), PORT)) for number in VOTERS)
        self.lives: dict[str, Program] = {}

    def start(self, *numbers: int) -> None:
        for number in numbers:
            program = self._program(number)
            self.world.add(name_of(number), program, number).start()

    def _program(self, number: int) -> Callable[[Runtime, Disk], Program]:
        return lambda runtime, disk: Program(runtime, disk, number, self)

    def settle(self) -> None:
        """Let snapshots be taken that are due, so that nobody is charged for them later."""
        self.world.run(5 * SECOND)
        self.meter.take()

    @property
    def now(self) -> int:
        return self.world.scheduler.now

    def until(self, condition: Callable[[], bool], seconds: int = 60, step_ms: int = 10) -> float:
        """Let time pass; how many virtual milliseconds it were."""
        begin = self.now
        while not condition():
            assert self.now - begin < seconds * SECOND, "waited in vain"
            self.world.run(step_ms * MILLISECOND)
            assert not self.world.failures, self.world.failures
        return (self.now - begin) / MILLISECOND

    def image(self, number: int) -> MetadataImage:
        return self.lives[name_of(number)].member.controller.image

    def leader(self) -> int | None:
        for number in VOTERS:
            node = self.world.nodes[name_of(number)]
            if node.is_up and self.lives[node.name].member.controller.is_leading:
                return number
        return None

    def submit(self, number: int, *commands: Command) -> list[Reply]:
        """The answers to commands that are given at once."""
        answers: list[Reply] = []
        controller = self.lives[name_of(number)].member.controller
        with self.meter.charging(name_of(number)):
            for command in commands:
                controller.submit(command, answers.append)
        self.until(lambda: len(answers) == len(commands), step_ms=1)
        return answers


def name_of(number: int) -> str:
    return f"n{number}"
