"""A whole cluster inside one thread, repeatable from one number.

The simulator implements the runtime port a second time, on virtual time: a seeded
network that delays, loses, duplicates, reorders and cuts; a crashable disk per node;
clocks that drift, are off and jump; syncs and workers that take their time; and a nemesis
that kills, pauses, partitions, cuts the power and lets files rot according to a plan drawn from
the seed. What runs is what ships: whole nodes, and clients that speak Kafka's bytes to their
listeners over simulated TCP (`cluster`). Checkers judge what clients saw against what is left at
the end.

    World -- nodes: SimulatedNode -- Life (one incarnation) -- Runtime of simulated parts
      |-- Scheduler   virtual time, one heap
      |-- Network     links between nodes; `tcp` for their clients
      |-- Trace       every delivery, hashed: same seed, same hash
    Nemesis(plan) makes the faults, Verdict is the outcome.

Left out: time that passes inside a callback (a callback takes none; a stall is a pause),
and the bytes of links between nodes (which are tested on real sockets).
"""

from penstock.sim.faults import CALM, FaultKind, FaultPlan, Nemesis
from penstock.sim.network import FAIR, NetworkFaults, SimulatedNetwork
from penstock.sim.node import SimulatedNode, SimulatedProgram
from penstock.sim.scheduler import Scheduler
from penstock.sim.trace import Trace
from penstock.sim.world import RunResult, World

__all__ = [
    "World",
    "SimulatedNode",
    "SimulatedProgram",
    "Scheduler",
    "SimulatedNetwork",
    "NetworkFaults",
    "FAIR",
    "FaultKind",
    "FaultPlan",
    "CALM",
    "Nemesis",
    "Trace",
    "RunResult",
]
