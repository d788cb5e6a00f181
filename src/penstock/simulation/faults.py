"""What goes wrong in a run, and who makes it go wrong.

A plan is drawn from the seed: a random subset of the faults, a pace, and a kind of
weather. Subsets matter, because some bugs need long quiet stretches with one kind of
fault, and a world in which everything fails all the time never shows them.
"""

import enum
import errno
import random
from collections import Counter
from dataclasses import dataclass

from penstock.core.model import MILLISECOND, SECOND
from penstock.runtime import Callback
from penstock.simulation.network import FAIR, Weather
from penstock.simulation.node import SimulatedNode
from penstock.simulation.world import World
from penstock.storage.disk import Failure


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


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which faults, how often, how long, and the weather between them."""

    kinds: tuple[FaultKind, ...]
    every_ns: int
    lasting_ns: int
    weather: Weather

    @staticmethod
    def draw(luck: random.Random) -> "FaultPlan":
        kinds = tuple(kind for kind in FaultKind if luck.random() < 0.4)
        weather = Weather(
            delay_max_ns=luck.choice((1, 5, 20, 100)) * MILLISECOND,
            loss=luck.choice((0.0, 0.01, 0.1)),
            duplicate=luck.choice((0.0, 0.01, 0.1)),
            reorder=luck.choice((0.0, 0.05, 0.3)),
        )
        every_ns = luck.choice((50, 200, 1000)) * MILLISECOND
        return FaultPlan(kinds, every_ns, luck.choice((100, 500, 3000)) * MILLISECOND, weather)


CALM = FaultPlan((), SECOND, SECOND, FAIR)


class Nemesis:
    """Carries out a plan on a world, until it is told to stop; then everything is repaired."""

    def __init__(self, world: World, plan: FaultPlan) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._plan = plan
        self._luck = world.random("nemesis")
        self._active = False

    def begin(self) -> None:
        self._active = True
        self._world.network.weather = self._plan.weather
        if self._plan.kinds:
            self._schedule_next()

    def end(self) -> None:
        """Repair everything: power, network, clocks' pace, disks. Wrong wall clocks stay wrong."""
        self._active = False
        world = self._world
        world.network.weather = FAIR
        world.network.mend_all()
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
        kind = self._luck.choice(self._plan.kinds)
        victim = self._luck.choice(list(self._world.nodes.values()))
        self.counts[kind.value] += 1
        self._world.note(victim.name, "fault", kind.value)
        self._carry_out(kind, victim)
        self._schedule_next()

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
        self._later(self._start_all)

    def _stop(self, victim: SimulatedNode) -> None:
        if victim.is_up:
            victim.stop()
        self._later(self._start_all)

    def _start_all(self) -> None:
        self._world.start_all()

    def _paths(self, kind: FaultKind, victim: SimulatedNode) -> list[tuple[str, str]]:
        """Which directions between which hosts a partition cuts."""
        names = list(self._world.nodes)
        others = [name for name in names if name != victim.name]
        if kind is FaultKind.ONE_WAY_CUT:
            path = (victim.name, self._luck.choice(others))
            return [path if self._luck.random() < 0.5 else path[::-1]]
        if kind is FaultKind.ISOLATE:
            return [pair for other in others for pair in ((victim.name, other), (other, victim.name))]
        self._luck.shuffle(names)
        if kind is FaultKind.SPLIT:
            side = dict.fromkeys(names[: len(names) // 2])
            return [(a, b) for a in names for b in names if (a in side) != (b in side)]
        # In a ring every node hears its two neighbours only: all have a majority, no two the same.
        near = {(names[i], names[i - 1]) for i in range(len(names))}
        return [(a, b) for a in names for b in names if a != b and not {(a, b), (b, a)} & near]

    def _cut(self, paths: list[tuple[str, str]]) -> None:
        for source, target in paths:
            self._world.network.cut(source, target)

        def mend() -> None:
            for source, target in paths:
                self._world.network.mend(source, target)

        self._later(mend)

    def _harm_disk(self, kind: FaultKind, victim: SimulatedNode) -> None:
        times = self._luck.randint(1, 3)
        if kind is FaultKind.POWER_CUT_IN_WRITE:
            victim.cut_power_at(self._luck.randint(1, 20))
        elif kind is FaultKind.FAILED_SYNC:
            victim.fail_disk(Failure("sync", after=self._luck.randint(0, 5), times=times))
        elif kind is FaultKind.FAILED_WRITE:
            code = self._luck.choice((errno.ENOSPC, errno.EIO))
            torn = self._luck.choice((0, 0, 7))
            victim.fail_disk(Failure("append", errno=code, times=times, kept_bytes=torn))
        else:
            victim.pace.slowness = 20
        self._later(victim.heal_disk)
        self._later(self._start_all)

    def _later(self, repair: Callback) -> None:
        def happen() -> None:
            if self._active:
                repair()

        self._world.scheduler.after(self._luck.randint(MILLISECOND, self._plan.lasting_ns), happen)
