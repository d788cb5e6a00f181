"""What goes wrong in a run, and who makes it go wrong.

    FaultPlan    drawn from the seed: which faults, how often, how long, the weather
    Nemesis      carries it out on a world, and repairs everything at the end
    damage       spoils files of a node that is down

A fault hits a machine (kill, power cut, pause, a disk that fails or is slow, a clock that
jumps, a damaged file, an empty disk) or the paths between hosts (one-way cut, isolation, split,
ring). Those of a machine may be aimed at whoever leads; those of the network meet the hosts of
clients too.

Left out: faults of clients, which crash by themselves; nodes that join or leave for good.
"""

from penstock.simulation.faults.damage import Damage
from penstock.simulation.faults.nemesis import Nemesis
from penstock.simulation.faults.plan import ANYWHERE, CALM, Aim, FaultKind, FaultPlan, draw_weather

__all__ = ["ANYWHERE", "Aim", "CALM", "Damage", "FaultKind", "FaultPlan", "Nemesis", "draw_weather"]
