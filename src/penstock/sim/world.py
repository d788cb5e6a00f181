"""A whole cluster in one thread, repeatable from its seed."""

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from penstock.core.model import CorruptionError, StorageError
from penstock.sim.network import SimulatedNetwork
from penstock.sim.node import SimulatedNode, SimulatedProgram
from penstock.sim.scheduler import Scheduler
from penstock.sim.trace import Trace
from penstock.storage.disk import PowerCut

# What is damaged if the disk is another one.
EVERYTHING = ""


class DiskDamage(NamedTuple):
    """The path that was damaged, and how often the node had been started by then."""

    what: str
    incarnation: int


class FlippedByte(NamedTuple):
    """A byte of a file that holds something else than was written, as long as nobody writes it anew."""

    path: str
    position: int
    value: bytes


class World:
    """Named nodes on one network, under one virtual clock.

    A node that ends with a storage error did what it should, if its disk has failed: it stays down
    until somebody starts it again. So did one that finds its files damaged, if they are. Dying of
    anything else is an anomaly of the run, and nobody restarts it.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.trace = Trace()
        self.network = SimulatedNetwork(self.scheduler, random.Random(f"{seed}/network"), self.trace)
        self.nodes: dict[str, SimulatedNode] = {}
        # Where clients are that no fault of a machine concerns; a partition of the network does.
        self.hosts: list[str] = []
        self.failures: list[str] = []
        self._broken: dict[str, None] = {}
        # Nodes whose files were damaged on purpose, and whether they have refused to start with them.
        self.damaged: dict[str, bool] = {}
        # What was damaged on each of them, in order: files, directories, or the whole disk.
        self.damages: dict[str, list[DiskDamage]] = {}
        self.flips: dict[str, list[FlippedByte]] = {}
        # How a node ends that the others do not accept for the time being.
        self.refusals: tuple[type[Exception], ...] = ()

    def random(self, purpose: str) -> random.Random:
        """A generator of its own per purpose, so that one more draw here changes nothing there."""
        return random.Random(f"{self.seed}/{purpose}")

    def add(self, name: str, program: SimulatedProgram, number: int | None = None) -> SimulatedNode:
        """Put a machine into the world; `start` it when it should run. `number` is its node id."""
        number = len(self.nodes) + 1 if number is None else number
        node = SimulatedNode(name, number, program, self.network, seed=str(self.seed), died=self._died)
        self.nodes[name] = node
        return node

    def _died(self, node: SimulatedNode, failure: BaseException) -> None:
        self.note(node.name, "died", type(failure).__name__)
        if isinstance(failure, PowerCut):
            node.cut_power()
            return
        node.kill()
        # On another disk it is another node, which the others refuse while they take the old one for alive.
        is_refused = isinstance(failure, self.refusals) and node.name in self.damaged
        if isinstance(failure, CorruptionError) and node.name in self.damaged:
            self.damaged[node.name] = True
        elif not is_refused and not (isinstance(failure, StorageError) and self._explains(node)):
            self._broken[node.name] = None
            self.failures.append(f"{node.name} died of {type(failure).__name__}: {failure}")

    def _explains(self, node: SimulatedNode) -> bool:
        """Whether something was done to this machine's disk that a storage error may come from."""
        return node.disk_has_failed or node.name in self.damaged

    def damage(self, name: str, what: str) -> None:
        """Files of a node are damaged on purpose: from now on it has an excuse for them."""
        self.damaged.setdefault(name, False)
        self.damages.setdefault(name, []).append(DiskDamage(what, self.nodes[name].incarnations))
        self.note(name, "damage", what)

    def is_rotten(self, name: str, directory: str) -> bool:
        """Whether a flipped byte in this directory of a node was not replaced so far."""
        disk = self.nodes[name].disk
        return any(
            disk.exists(flip.path) and disk.open(flip.path).pread(flip.position, 1) == flip.value
            for flip in self.flips.get(name, ())
            if flip.path.startswith(f"{directory}/")
        )

    def note(self, who: str, what: str, detail: int | str = 0) -> None:
        """Put something that is not a delivery on record: a fault, a repair."""
        self.trace.record(self.scheduler.now, who, what, detail)

    def start_all(self, names: Iterable[str] | None = None) -> None:
        """Start every node that is down and not broken for good."""
        for name in self.nodes if names is None else names:
            if not self.nodes[name].is_up and name not in self._broken:
                self.nodes[name].start()

    def run(self, duration_ns: int, enough: Callable[[], bool] | None = None) -> None:
        """Let virtual time pass."""
        self.scheduler.run(self.scheduler.now + duration_ns, enough)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did and what was wrong with it. Everything in it follows from the seed."""

    seed: int
    anomalies: tuple[str, ...]
    # Requests of clients, and records that were acknowledged to them.
    operations: int
    acknowledged: int
    events: int
    virtual_ms: int
    faults: dict[str, int]
    trace: str
    # What the run came across, and how often.
    visited: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.anomalies

    def to_json(self) -> str:
        return json.dumps({"passed": self.passed, **asdict(self)})
