"""One run of the echo in the simulator: a server, two clients, and a nemesis."""

from collections.abc import Callable

from penstock.core.model import MILLISECOND, SECOND
from penstock.runtime import Address, Runtime, Service
from penstock.simulation.checkers.echo import check_echo
from penstock.simulation.echo.client import EchoClient, EchoHistory, Load
from penstock.simulation.echo.messages import read_entries
from penstock.simulation.echo.server import FILE, DurableEcho
from penstock.simulation.faults import FaultPlan, Nemesis
from penstock.simulation.verdict import Verdict
from penstock.simulation.world import World
from penstock.storage.disk import CrashableDisk, Disk

SERVER = Address("server", 7000)
CLIENTS = 2
LOAD = Load(count=500, window=8, think_ms=50)
FAULTY_NS = 20 * SECOND
HEALING_NS = 60 * SECOND

ServerProgram = Callable[[Runtime, Disk, Address], Service]


def run_echo(seed: int, server: ServerProgram = DurableEcho, plan: FaultPlan | None = None) -> Verdict:
    """Run one world to its end and judge it. The same arguments give the same verdict, to the bit."""
    world = World(seed)
    history = EchoHistory()
    nemesis = Nemesis(world, plan or FaultPlan.draw(world.random("plan")))
    finished: dict[str, bool] = {}
    world.add("server", lambda runtime, disk: server(runtime, disk, SERVER))
    for number in range(1, CLIENTS + 1):
        _add_client(world, f"client-{number}", history, finished)
    world.start_all()
    nemesis.begin()
    world.run(FAULTY_NS)
    nemesis.end()
    world.run(HEALING_NS, lambda: len(finished) == CLIENTS or bool(world.failures))

    anomalies = list(world.failures)
    if len(finished) < CLIENTS and not anomalies:
        anomalies.append(f"stuck: unanswered {HEALING_NS // SECOND} s after the last fault")
    # Whatever the server still holds in memory, the power cut takes.
    world.nodes["server"].cut_power()
    anomalies += check_echo(history.sent, history.answered, _stored(world.nodes["server"].disk))
    return Verdict(
        seed=seed,
        anomalies=tuple(anomalies),
        operations=len(history.sent),
        events=world.scheduler.events,
        virtual_ms=world.scheduler.now // MILLISECOND,
        faults=dict(sorted(nemesis.counts.items())),
        trace=world.trace.digest(),
    )


def _add_client(world: World, name: str, history: EchoHistory, finished: dict[str, bool]) -> None:
    def program(runtime: Runtime, _disk: Disk) -> Service:
        finished.pop(name, None)  # a new life has it all before it

        def done() -> None:
            finished[name] = True

        return EchoClient(runtime, SERVER, history, LOAD, done)

    world.add(name, program)


def _stored(disk: CrashableDisk) -> list[tuple[bytes, bytes]]:
    if not disk.exists(FILE):
        return []
    file = disk.open(FILE, readonly=True)
    return [(entry.request_id, entry.payload) for entry in read_entries(file.pread(0, file.size()))[0]]
