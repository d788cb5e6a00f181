"""Building the production runtime of a node, and running one node in this process."""

import asyncio
from dataclasses import dataclass, field

import uvloop

from penstock.runtime.clock import MachineClock, MachineEntropy
from penstock.runtime.garbage import settle
from penstock.runtime.last_resort import LastResort
from penstock.runtime.peers import Admit, Hello, PeerOptions, SocketTransport, Wiring
from penstock.runtime.port import Identity, Program, Runtime, Service
from penstock.runtime.spawn import LaneOptions, Lanes
from penstock.runtime.supervised_sync import SupervisedSync
from penstock.runtime.supervisor import STOP_LIMIT_NS, Supervisor
from penstock.runtime.sync_helper import LoopSync, SyncHelper
from penstock.runtime.timers import LoopTimers


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """The options of the production runtime. `admit` judges peers' hellos; by default, same cluster."""

    peers: PeerOptions = field(default_factory=PeerOptions)
    lanes: LaneOptions = field(default_factory=LaneOptions)
    admit: Admit | None = None


def open_runtime(
    loop: asyncio.AbstractEventLoop, supervisor: Supervisor, identity: Identity, options: RuntimeOptions
) -> Runtime:
    """Build the runtime of one node on `loop`; `supervisor` closes its parts in reverse order."""
    clock = MachineClock()
    wiring = Wiring(
        loop,
        clock,
        supervisor.deliver,
        hello=Hello(identity, options.peers.authentication),
        admit=options.admit,
        options=options.peers,
    )
    timers = LoopTimers(loop, clock, supervisor.deliver, wiring.sockets_busy)
    supervisor.own(timers.close)
    lanes = Lanes(loop, supervisor.deliver, options.lanes)
    supervisor.own(lanes.close)
    helper = SyncHelper.start(loop, supervisor.fail)
    supervisor.own(helper.close)
    transport = SocketTransport(wiring, timers, lanes)
    supervisor.own(transport.close)
    sync = SupervisedSync(loop, helper, LoopSync(loop, clock, wiring.links), supervisor.deliver)
    return Runtime(clock, timers, transport, sync, lanes, MachineEntropy())


def run(program: Program, identity: Identity, options: RuntimeOptions | None = None) -> BaseException | None:
    """Run one node until it stops, or fails: then the answer is what it failed of."""
    loop = uvloop.new_event_loop()
    last_resort = LastResort(STOP_LIMIT_NS)
    supervisor = Supervisor(loop, last_resort=last_resort)
    loop.set_exception_handler(supervisor.loop_failed)

    def start() -> Service:
        # On the running loop: a signal that comes before it runs would be lost by uvloop.
        supervisor.watch_signals()
        service = program(open_runtime(loop, supervisor, identity, options or RuntimeOptions()))
        settle()
        return service

    try:
        loop.call_soon(supervisor.run, start)
        loop.run_forever()
    finally:
        supervisor.close()
        loop.close()
        last_resort.call_off()
    return supervisor.failure
