"""Nodes that are members of a cluster and nothing else, on the simulated runtime."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from penstock.broker.cluster import BrokerRegistration, ClusterMember, ClusterOptions, QuorumStore, Voter
from penstock.core.metadata import Command, MetadataImage, Reply
from penstock.core.model import MILLISECOND, SECOND, BrokerEpoch, NodeId
from penstock.core.raft import Configuration
from penstock.runtime import Address, Callback, Runtime
from penstock.sim import World
from penstock.sim.node import SimulatedNode
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk

PORT = 7000
T = TypeVar("T")


def voters(*numbers: int) -> tuple[Voter, ...]:
    return tuple(Voter(NodeId(number), Address(f"n{number}", PORT)) for number in numbers)


def member_options(number: int, listed: tuple[Voter, ...], host: str | None = None) -> ClusterOptions:
    return ClusterOptions(BrokerRegistration(NodeId(number), ()), Address(host or f"n{number}", PORT), listed)


class Life:
    """One incarnation of a node: registers, and goes live as if its logs were open."""

    def __init__(self, runtime: Runtime, disk: Disk, machine: SimulatedNode, options: ClusterOptions) -> None:
        self.directory = directory = DataDirectory.open(disk, machine.identity.directory_id)
        store = QuorumStore(disk, disk, GroupCommit(runtime.sync))
        self.clock = runtime.clock
        self.epoch: BrokerEpoch | None = None
        self.is_joined = False
        self.is_live = False
        self.member = ClusterMember(runtime, store, directory, options)
        self.member.start(self._registered)

    def _registered(self, epoch: BrokerEpoch | None) -> None:
        self.epoch = epoch
        self.is_joined = True
        if epoch is not None:
            self.member.go_live(self._live)

    def _live(self) -> None:
        self.is_live = True

    @property
    def has_lease(self) -> bool:
        """Whether it would answer a request now."""
        return self.clock.now() < self.member.lease.until

    def stop(self, done: Callback) -> None:
        def left() -> None:
            self.member.close()
            done()

        self.member.begin_controlled_shutdown(left)


class ClusterStage:
    """Machines `n1`, `n2` and so on; what they run can be changed between their incarnations."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.incarnations: dict[str, Life] = {}
        self.options: dict[str, ClusterOptions] = {}

    def add(self, options: ClusterOptions, name: str | None = None) -> str:
        number = options.registration.node_id
        name = name or f"n{number}"
        self.options[name] = options

        def program(runtime: Runtime, disk: Disk) -> Life:
            self.incarnations[name] = Life(runtime, disk, self.world.nodes[name], self.options[name])
            return self.incarnations[name]

        self.world.add(name, program, number)
        return name

    def configure(self, name: str, **changes: object) -> None:
        self.options[name] = replace(self.options[name], **changes)  # type: ignore[arg-type]

    def start(self, *names: str) -> None:
        for name in names or tuple(self.options):
            self.world.nodes[name].start()

    def run_ms(self, duration_ms: int) -> None:
        self.world.run(duration_ms * MILLISECOND)

    def until(self, condition: Callable[[], bool], seconds: int = 20) -> None:
        """Let time pass until the condition holds; a test that waits in vain fails."""
        self.world.run(seconds * SECOND, lambda: condition() or bool(self.world.failures))
        assert not self.world.failures, self.world.failures
        assert condition(), "waited in vain"

    def member(self, name: str) -> ClusterMember:
        return self.incarnations[name].member

    def image(self, name: str) -> MetadataImage:
        return self.member(name).controller.image

    def is_live(self, *names: str) -> bool:
        """Whether these nodes are live brokers, as far as all of them know."""
        names = names or tuple(self.options)
        if not all(name in self.incarnations and self.incarnations[name].is_live for name in names):
            return False
        numbers = [self.options[name].registration.node_id for name in names]
        return all(self.image(name).is_live(number) for name in names for number in numbers)

    def configuration(self, name: str) -> Configuration:
        return self.member(name).quorum.raft.configuration

    def voters(self, name: str) -> list[int]:
        return sorted(voter.node_id for voter in self.configuration(name).voters)

    def learners(self, name: str) -> list[int]:
        return sorted(learner.node_id for learner in self.configuration(name).learners)

    def leader(self) -> str:
        """The name of the node that decides."""
        led = [
            name
            for name, life in self.incarnations.items()
            if self.world.nodes[name].is_up and life.member.controller.is_leading
        ]
        assert len(led) == 1, led
        return led[0]

    def followers(self) -> list[str]:
        leader = self.leader()
        return [name for name in self.incarnations if self.world.nodes[name].is_up and name != leader]

    def submit(self, name: str, command: Command, seconds: int = 20) -> Reply:
        """The reply that a node gets; the world goes on until it has it."""
        answers: list[Reply] = []
        self.member(name).controller.submit(command, answers.append)
        self.until(lambda: bool(answers), seconds)
        return answers[0]

    def ask(self, asking: Callable[[Callable[[T], None]], None], seconds: int = 20) -> T:
        answers: list[T] = []
        asking(answers.append)
        self.until(lambda: bool(answers), seconds)
        return answers[0]


def cluster_of(count: int = 3, seed: int = 1) -> ClusterStage:
    """A cluster that is founded, all of whose brokers are live."""
    stage = ClusterStage(seed)
    listed = voters(*range(1, count + 1))
    for number in range(1, count + 1):
        stage.add(member_options(number, listed))
    stage.start()
    stage.until(stage.is_live)
    return stage
