"""Which faults a run has, how often, whom they are aimed at, and how long they last.

A plan is drawn from the seed: a random subset of the faults, a pace, and a kind of
weather. Subsets matter, because some bugs need long quiet stretches with one kind of
fault, and a world in which everything fails all the time never shows them.
"""

import enum
import random
from dataclasses import dataclass

from penstock.core.model import MILLISECOND, SECOND
from penstock.simulation.network import FAIR, Weather


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
    DAMAGE = "damage"
    NEW_DISK = "new-disk"


# What every service must live with, alone or not.
WITH_OTHERS = (FaultKind.ROLLING_RESTART, FaultKind.DAMAGE, FaultKind.NEW_DISK)
ANYWHERE = tuple(kind for kind in FaultKind if kind not in WITH_OTHERS)


class Aim(enum.Enum):
    """Whom a fault hits: somebody, or whoever does the work just now."""

    ANYBODY = "anybody"
    LEADER = "leader"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which faults, how often, how long, and the weather between them."""

    kinds: tuple[FaultKind, ...]
    every_ns: int
    lasting_ns: int
    weather: Weather
    aims: tuple[Aim, ...] = (Aim.ANYBODY,)
    # Whether the next fault waits until the world works again: what is down cannot fall.
    patient: bool = False

    @staticmethod
    def draw(luck: random.Random) -> "FaultPlan":
        kinds = tuple(kind for kind in ANYWHERE if luck.random() < 0.4)
        weather = draw_weather(luck)
        every_ns = luck.choice((50, 200, 1000)) * MILLISECOND
        return FaultPlan(kinds, every_ns, luck.choice((100, 500, 3000)) * MILLISECOND, weather)


def draw_weather(luck: random.Random) -> Weather:
    """How slow, lossy and disorderly the network is."""
    return Weather(
        delay_max_ns=luck.choice((1, 5, 20, 100)) * MILLISECOND,
        loss=luck.choice((0.0, 0.01, 0.1)),
        duplicate=luck.choice((0.0, 0.01, 0.1)),
        reorder=luck.choice((0.0, 0.05, 0.3)),
    )


CALM = FaultPlan((), SECOND, SECOND, FAIR)
