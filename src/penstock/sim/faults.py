"""What goes wrong in a run, and the nemesis that makes it go wrong.

    FaultPlan       drawn from the seed: which faults, how often, how long, how bad the network is
    Nemesis         carries it out on a world, and repairs everything at the end
    FileCorruptor   damages files of a node that is down

A fault hits a machine (kill, power cut, pause, a disk that fails or is slow, a clock that
jumps, a damaged file, an empty disk) or the paths between hosts (one-way cut, isolation, split,
ring), or both: a leader that is cut off, from all others or all but some, written to and killed
(stranded-leader).
Faults of a machine may be aimed at whoever leads; those of the network hit the hosts of
clients too.

A plan has a random subset of the faults, not all of them: some bugs need long quiet stretches
with one kind of fault, and a world in which everything fails all the time never shows them.

Files are damaged on one node of a world only: what a minority has lost the others still have, and
no replication survives more. They lose their ends, have a bit flipped, or are gone:

    damage              an old segment, or a small file of a partition or of the quorum
    damaged-tail        the segment that grows: what was synced after the last checkpoint
    missing-file        a segment, or the file that says which partition a directory belongs to …
    missing-directory   a whole partition
    damaged-quorum      log, hard state and snapshots of the quorum, the end of its log included
    damaged-journal     the journal that a recovery reads
    rot                 a bit of a segment or of a file of the quorum, while the node runs
    failed-read         errors of the disk, while the node runs
    new-disk            everything

Left out: faults of clients, which crash by themselves; nodes that join or leave for good.
"""

import enum
import errno
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.core.model import MILLISECOND, SECOND, CorruptionError
from penstock.runtime import Callback
from penstock.sim.network import FAIR, NetworkFaults
from penstock.sim.node import SimulatedNode
from penstock.sim.world import EVERYTHING, FlippedByte, World
from penstock.storage.disk import CrashableDisk, FailureRule
from penstock.storage.log.file_names import CHECKPOINT
from penstock.storage.log.files import Checkpoint, decode_checkpoint, read_file

PathFilter = Callable[[str], bool]
SEGMENT = ".log"
JOURNAL, QUORUM = "meta/journal/", "meta/raft/"
# How often a file of these is gone instead of damaged.
MISSING = 0.3
# How often all other nodes are killed when the files of one are damaged.
ALL_DOWN = 0.5
# How often the end of the quorum's log is damaged together with the journal, which could restore it.
LOST_TWICE = 0.5
# How long a leader that is about to fall writes what nobody else gets.
STRANDED_MIN_NS, STRANDED_MAX_NS = 30 * MILLISECOND, 200 * MILLISECOND
# How often a patient nemesis looks whether the world works again.
PATIENCE_NS = 50 * MILLISECOND
# After so many looks in vain it starts the nodes that are down.
WAITS_MAX = 40


class FaultKind(enum.Enum):
    """Everything the nemesis can do. The values are names in plans and reports."""

    KILL = "kill"
    KILL_ALL = "kill-all"
    POWER_CUT = "power-cut"
    POWER_CUT_ALL = "power-cut-all"
    POWER_CUT_IN_WRITE = "power-cut-in-write"
    STOP = "stop"
    PAUSE = "pause"
    ONE_WAY_CUT = "one-way-cut"
    ISOLATE = "isolate"
    SPLIT = "split"
    RING = "ring"
    CLOCK_JUMP = "clock-jump"
    FAILED_SYNC = "failed-sync"
    FAILED_WRITE = "failed-write"
    SLOW_DISK = "slow-disk"
    # Only where there are replicas to make up for it.
    ROLLING_RESTART = "rolling-restart"
    STRANDED_LEADER = "stranded-leader"
    DAMAGE = "damage"
    DAMAGED_TAIL = "damaged-tail"
    MISSING_FILE = "missing-file"
    MISSING_DIRECTORY = "missing-directory"
    DAMAGED_QUORUM = "damaged-quorum"
    DAMAGED_JOURNAL = "damaged-journal"
    ROT = "rot"
    FAILED_READ = "failed-read"
    NEW_DISK = "new-disk"


# Files of one node are damaged.
DAMAGES = (
    FaultKind.DAMAGE,
    FaultKind.DAMAGED_TAIL,
    FaultKind.MISSING_FILE,
    FaultKind.MISSING_DIRECTORY,
    FaultKind.DAMAGED_QUORUM,
    FaultKind.DAMAGED_JOURNAL,
    FaultKind.ROT,
    FaultKind.FAILED_READ,
    FaultKind.NEW_DISK,
)
WHILE_RUNNING = (FaultKind.ROT, FaultKind.FAILED_READ)
# What every service must survive, alone or not.
WITH_OTHERS = (FaultKind.ROLLING_RESTART, FaultKind.STRANDED_LEADER, *DAMAGES)
ANYWHERE = tuple(kind for kind in FaultKind if kind not in WITH_OTHERS)


class FaultTarget(enum.Enum):
    """Whom a fault hits: somebody, or whoever does the work just now."""

    ANYBODY = "anybody"
    LEADER = "leader"
    CONTROLLER = "controller"
    # One that was elected since the last fault of this kind.
    NEW_CONTROLLER = "new-controller"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which faults, how often, how long, and how bad the network is between them."""

    kinds: tuple[FaultKind, ...]
    every_ns: int
    lasting_ns: int
    network_faults: NetworkFaults
    aims: tuple[FaultTarget, ...] = (FaultTarget.ANYBODY,)
    # Whether the next fault waits until the world works again: what is down cannot fall.
    patient: bool = False
    # Whether faults hit nobody else, if whom they are aimed at is not there just now.
    strict: bool = False
    # How many of the other nodes a stranded leader still reaches.
    stranded_with: int = 0

    @staticmethod
    def draw(luck: random.Random) -> "FaultPlan":
        kinds = tuple(kind for kind in ANYWHERE if luck.random() < 0.4)
        weather = draw_weather(luck)
        every_ns = luck.choice((50, 200, 1000)) * MILLISECOND
        return FaultPlan(kinds, every_ns, luck.choice((100, 500, 3000)) * MILLISECOND, weather)


def draw_weather(luck: random.Random) -> NetworkFaults:
    """How slow, lossy and disorderly the network is."""
    return NetworkFaults(
        delay_max_ns=luck.choice((1, 5, 20, 100)) * MILLISECOND,
        loss=luck.choice((0.0, 0.01, 0.1)),
        duplicate=luck.choice((0.0, 0.01, 0.1)),
        reorder=luck.choice((0.0, 0.05, 0.3)),
    )


CALM = FaultPlan((), SECOND, SECOND, FAIR)


class FileCorruptor:
    """Damages files of one node: those that other nodes have, too."""

    def __init__(self, luck: random.Random, nodes: Sequence[SimulatedNode], spoils: PathFilter) -> None:
        self._luck = luck
        self._spoils = spoils
        self.victim = luck.choice(nodes)
        self.done: list[str] = []
        self.flips: list[FlippedByte] = []

    def strike(self, kind: FaultKind) -> list[str]:
        """Damage one file, or lose one, or a directory; returns which.

        The journal has the end of the quorum's log as well: half of the time it is gone with it.
        """
        assert kind in WHILE_RUNNING or not self.victim.is_up
        disk = self.victim.disk
        paths = [path for path in disk.files() if disk.size(path) > 0 and self._concerns(kind, disk, path)]
        if kind is FaultKind.MISSING_DIRECTORY:
            paths = list(dict.fromkeys(path.rpartition("/")[0] for path in paths))
        if not paths:
            return []
        struck = [self._luck.choice(paths)]
        if kind is FaultKind.DAMAGED_QUORUM and self._luck.random() < LOST_TWICE:
            struck = [path for path in paths if path.endswith(SEGMENT)][-1:]
            lost = [path for path in disk.files() if path.startswith(JOURNAL)]
            for path in lost:
                disk.lose(path)
        else:
            lost = []
        self.done += [f"{path}: {self._spoil(kind, disk, path)}" for path in struck]
        return struck + lost

    def _concerns(self, kind: FaultKind, disk: CrashableDisk, path: str) -> bool:
        if kind is FaultKind.DAMAGED_JOURNAL:
            return path.startswith(JOURNAL)
        if kind is FaultKind.DAMAGED_QUORUM:
            return path.startswith(QUORUM)
        is_segment = path.endswith(SEGMENT)
        is_quorum = path.startswith(QUORUM)
        if not self._spoils(path) or (is_quorum and kind not in (FaultKind.DAMAGE, FaultKind.ROT)):
            return False
        if kind is FaultKind.DAMAGED_TAIL:
            return is_segment and not _is_checkpointed(disk, path)
        if kind is FaultKind.DAMAGE:
            return not is_segment or _is_checkpointed(disk, path)
        return is_segment or is_quorum or kind is not FaultKind.ROT

    def _spoil(self, kind: FaultKind, disk: CrashableDisk, path: str) -> str:
        missing = kind in (FaultKind.MISSING_FILE, FaultKind.MISSING_DIRECTORY)
        may_miss = kind in (FaultKind.DAMAGED_QUORUM, FaultKind.DAMAGED_JOURNAL)
        if missing or (may_miss and self._luck.random() < MISSING):
            disk.lose(path)
            return "gone"
        size = disk.size(path)
        # In the middle of an old segment whoever reads a flipped bit notices it, not a start.
        is_old_segment = kind is FaultKind.DAMAGE and path.endswith(SEGMENT)
        if kind is FaultKind.ROT or (not is_old_segment and self._luck.random() < 0.5):
            first = _tail_begins(disk, path) if kind is FaultKind.DAMAGED_TAIL else 0
            bit = self._luck.randrange(8 * min(first, size - 1), 8 * size)
            disk.flip_bit(path, bit)
            byte = disk.open(path).pread(bit // 8, 1)
            self.flips.append(FlippedByte(path, bit // 8, byte))
            return f"bit {bit} flipped"
        kept = self._luck.randrange(size)
        disk.cut_short(path, kept)
        return f"cut from {size} to {kept} bytes"


def _checkpoint_of(disk: CrashableDisk, path: str) -> Checkpoint | None:
    content = read_file(disk, f"{path.rpartition('/')[0]}/{CHECKPOINT}")
    try:
        return None if content is None else decode_checkpoint(content)
    except CorruptionError:
        return None


def _is_checkpointed(disk: CrashableDisk, path: str) -> bool:
    """Whether the whole segment lies below the recovery point of its log."""
    checkpoint = _checkpoint_of(disk, path)
    base_offset = int(path.rpartition("/")[2].removesuffix(SEGMENT))
    return checkpoint is not None and base_offset < checkpoint.segment


def _tail_begins(disk: CrashableDisk, path: str) -> int:
    """Where in the growing segment the checkpoint ends."""
    checkpoint = _checkpoint_of(disk, path)
    return 0 if checkpoint is None else checkpoint.position


class Nemesis:
    """Carries out a plan on a world, until it is stopped; then everything is repaired.

    `find` returns the machine that a fault is aimed at, if there is one just now; `works` whether
    the world has done something since the last fault, for plans that are patient.
    """

    def __init__(
        self,
        world: World,
        plan: FaultPlan,
        find: Callable[[FaultTarget], SimulatedNode | None] | None = None,
        works: Callable[[], bool] = lambda: True,
        damage: FileCorruptor | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._plan = plan
        self._find = find
        self._works = works
        self._damage = damage
        self._luck = world.random("nemesis")
        self._active = False
        self._waits = 0

    def begin(self) -> None:
        self._active = True
        self._world.network.network_faults = self._plan.network_faults
        if self._plan.kinds:
            self._schedule_next()

    def relent(self) -> None:
        """From now on wait with every fault until the world works again; nothing is lost between them."""
        self._plan = replace(self._plan, patient=True)
        self._world.network.network_faults = FAIR

    def end(self) -> None:
        """Repair everything: power, network, clock speed, disks. Wrong wall clocks stay wrong."""
        self._active = False
        world = self._world
        world.network.network_faults = FAIR
        world.network.heal_all()
        for node in world.nodes.values():
            node.cut_power_at(None)
            node.heal_disk()
            node.resume()
        world.start_all()
        world.note("nemesis", "end")

    def _schedule_next(self) -> None:
        self._world.scheduler.after(int(self._luck.expovariate(1 / self._plan.every_ns)), self._strike)

    def _strike(self) -> None:
        if not self._active:
            return
        if self._plan.patient and not self._works():
            self._waits += 1
            if self._waits % WAITS_MAX == 0:
                # A fault may outlive its repair: a node whose disk failed later on is down still.
                self._world.start_all()
            self._world.scheduler.after(PATIENCE_NS, self._strike)
            return
        self._waits = 0
        victim = self._victim()
        if victim is None:
            self._schedule_next()
            return
        kind = self._luck.choice(self._plan.kinds)
        self.counts[kind.value] += 1
        self._world.note(victim.name, "fault", kind.value)
        self._carry_out(kind, victim)
        self._schedule_next()

    def _victim(self) -> SimulatedNode | None:
        aims = self._plan.aims
        aim = aims[0] if len(aims) == 1 else self._luck.choice(aims)
        found = self._find(aim) if self._find is not None and aim is not FaultTarget.ANYBODY else None
        if found is None and self._plan.strict:
            return None
        return found or self._luck.choice(list(self._world.nodes.values()))

    def _carry_out(self, kind: FaultKind, victim: SimulatedNode) -> None:
        match kind:
            case FaultKind.KILL | FaultKind.KILL_ALL | FaultKind.POWER_CUT | FaultKind.POWER_CUT_ALL:
                self._down(kind, victim)
            case FaultKind.STOP:
                self._stop(victim)
            case FaultKind.PAUSE:
                victim.pause()
                self._later(victim.resume)
            case FaultKind.CLOCK_JUMP:
                victim.jump_clock(self._luck.choice((-3_600_000, -1000, -10, 10, 1000, 3_600_000)))
            case FaultKind.ONE_WAY_CUT | FaultKind.ISOLATE | FaultKind.SPLIT | FaultKind.RING:
                self._cut(self._paths(kind, victim))
            case FaultKind.STRANDED_LEADER | FaultKind.ROLLING_RESTART:
                self._take_leaders_down(kind, victim)
            case _ if kind in DAMAGES:
                self._damage_files(kind)
            case _:
                self._harm_disk(kind, victim)

    def _down(self, kind: FaultKind, victim: SimulatedNode) -> None:
        all_of_them = kind in (FaultKind.KILL_ALL, FaultKind.POWER_CUT_ALL)
        for node in list(self._world.nodes.values()) if all_of_them else [victim]:
            if not node.is_up:
                continue
            if kind in (FaultKind.POWER_CUT, FaultKind.POWER_CUT_ALL):
                node.cut_power()
            else:
                node.kill()
            # Each at a time of its own: whoever led before may be the last to come back.
            self._later(partial(self._world.start_all, [node.name]))

    def _take_leaders_down(self, kind: FaultKind, victim: SimulatedNode) -> None:
        if kind is FaultKind.ROLLING_RESTART:
            self._restart_next(list(self._world.nodes.values()))
        else:
            self._strand((self._find and self._find(FaultTarget.LEADER)) or victim)

    def _strand(self, leader: SimulatedNode) -> None:
        """Cut a leader off from the other nodes, and kill it: what clients wrote meanwhile has it alone.

        Or it still reaches some of them, which have what the others do not.
        """
        others = [name for name in self._world.nodes if name != leader.name]
        for _ in range(self._plan.stranded_with):
            others.remove(self._luck.choice(others))
        paths = [pair for other in others for pair in ((leader.name, other), (other, leader.name))]
        for source, target in paths:
            self._world.network.cut(source, target)

        def fall() -> None:
            for source, target in paths:
                self._world.network.heal(source, target)
            if self._active:
                self._down(FaultKind.KILL, leader)

        self._world.scheduler.after(self._luck.randint(STRANDED_MIN_NS, STRANDED_MAX_NS), fall)

    def _stop(self, victim: SimulatedNode) -> None:
        if victim.is_up:
            victim.stop()
        self._later(self._start_all)

    def _start_all(self) -> None:
        self._world.start_all()

    def _restart_next(self, left: list[SimulatedNode]) -> None:
        """Stop and start one node after the other, as an operator does."""
        if not left:
            return
        node, others = left[0], left[1:]
        if node.is_up:
            node.stop()

        def start() -> None:
            if not node.is_up:
                self._world.start_all([node.name])
            self._later(lambda: self._restart_next(others))

        self._later(start)

    def _damage_files(self, kind: FaultKind) -> None:
        """Damage files of one node, which is down for it; or let them rot while it runs.

        Half of the time all others fall with it, so that an election depends on what is left.
        """
        assert self._damage is not None, "the plan asks for damage, and nobody does it"
        victim = self._damage.victim
        if kind in WHILE_RUNNING:
            self._rot(kind, victim)
            return
        if victim.is_up:
            victim.kill()
        if kind is FaultKind.NEW_DISK:
            victim.replace_disk()
            self._world.damage(victim.name, EVERYTHING)
        else:
            for path in self._damage.strike(kind):
                self._world.damage(victim.name, path)
        self._later(partial(self._world.start_all, [victim.name]))
        if self._luck.random() < ALL_DOWN:
            self._down(FaultKind.KILL_ALL, victim)

    def _rot(self, kind: FaultKind, victim: SimulatedNode) -> None:
        if kind is FaultKind.ROT and self._damage is not None:
            for path in self._damage.strike(kind):
                self._world.damage(victim.name, path)
            return
        self._world.damaged.setdefault(victim.name, False)
        victim.fail_disk(FailureRule("pread", path_ends=SEGMENT, times=self._luck.randint(1, 3)))
        self._later(victim.heal_disk)
        self._later(self._start_all)

    def _paths(self, kind: FaultKind, victim: SimulatedNode) -> list[tuple[str, str]]:
        """Which directions between which hosts a partition cuts."""
        names, clients = list(self._world.nodes), self._world.hosts
        # Half of the time clients still reach everybody, and see what nodes make of being cut off.
        hosts = [*names, *clients] if clients and (len(names) == 1 or self._luck.random() < 0.5) else names
        others = [host for host in hosts if host != victim.name]
        if kind is FaultKind.ONE_WAY_CUT:
            path = (victim.name, self._luck.choice(others))
            return [path if self._luck.random() < 0.5 else path[::-1]]
        if kind is FaultKind.ISOLATE:
            return [pair for other in others for pair in ((victim.name, other), (other, victim.name))]
        self._luck.shuffle(names)
        if kind is FaultKind.SPLIT:
            side = dict.fromkeys(names[: len(names) // 2])
            side |= dict.fromkeys(host for host in hosts if host in clients and self._luck.random() < 0.5)
            return [(a, b) for a in hosts for b in hosts if (a in side) != (b in side)]
        # In a ring every node reaches its two neighbours only: all have a majority, no two the same.
        near = {(names[i], names[i - 1]) for i in range(len(names))}
        return [(a, b) for a in names for b in names if a != b and not {(a, b), (b, a)} & near]

    def _cut(self, paths: list[tuple[str, str]]) -> None:
        for source, target in paths:
            self._world.network.cut(source, target)

        def mend() -> None:
            for source, target in paths:
                self._world.network.heal(source, target)

        self._later(mend)

    def _harm_disk(self, kind: FaultKind, victim: SimulatedNode) -> None:
        times = self._luck.randint(1, 3)
        if kind is FaultKind.POWER_CUT_IN_WRITE:
            victim.cut_power_at(self._luck.randint(1, 20))
        elif kind is FaultKind.FAILED_SYNC:
            victim.fail_disk(FailureRule("sync", after=self._luck.randint(0, 5), times=times))
        elif kind is FaultKind.FAILED_WRITE:
            code = self._luck.choice((errno.ENOSPC, errno.EIO))
            torn = self._luck.choice((0, 0, 7))
            victim.fail_disk(FailureRule("append", errno=code, times=times, kept_bytes=torn))
        else:
            victim.pace.slowness = 20
        self._later(victim.heal_disk)
        self._later(self._start_all)

    def _later(self, repair: Callback) -> None:
        def happen() -> None:
            if self._active:
                repair()

        self._world.scheduler.after(self._luck.randint(MILLISECOND, self._plan.lasting_ns), happen)
