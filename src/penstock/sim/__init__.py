"""A whole cluster inside one thread, repeatable from one number.

The simulator implements the runtime port a second time, on virtual time: a seeded
network that delays, loses, duplicates, reorders and cuts; a crashable disk per node;
clocks that drift, are off and jump; syncs and executors that take their time; and a nemesis
that kills, pauses, partitions, cuts the power and lets files rot according to a plan drawn from
the seed. What runs is what ships: whole nodes, and clients that speak Kafka's bytes to their
listeners over simulated TCP. Checkers compare what clients saw with what is left at the end.

    World -- nodes: SimulatedNode -- Incarnation -- Runtime of simulated parts
      |-- Scheduler   virtual time, one heap
      |-- SimulatedNetwork   links between nodes; SimulatedTcp for their clients
      |-- Trace       every delivery, hashed: same seed, same hash
    Nemesis carries out the FaultPlan; RunResult is the outcome.

    scheduler            virtual time
    clocks               clocks, timers and randomness of a node
    disk_and_executors   syncs and worker jobs that take virtual time
    network, tcp         links between nodes; connections of clients
    incarnation, node    one run of a node's process; the machine it runs on
    faults               what goes wrong, and the nemesis
    world                all nodes under one clock, and the result of a run
    trace, values        the record of a run; unique values as record batches
    cluster              whole clusters with their clients
    checkers             the guarantees
    command              `penstock sim`

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
