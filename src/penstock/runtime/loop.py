"""Builds the production runtime of a node, and runs one node in this process or on one of its threads.

`Supervisor`: every callback of a node is delivered through it. The first exception ends the node:
from then on nothing is delivered, so that no other part acts on a state that a failed assert has
just called impossible. What was opened is closed in reverse order, whichever way the node ends.

`ExitWatchdog`: a disk that hangs keeps the loop's thread inside a call that no timer of the loop
can end, and a disk thread keeps the interpreter from exiting. What was acknowledged is on the disk
by then or never will be, so the watchdog ends a process that was told to stop and is stuck.

`freeze_garbage_collector`: by default Python looks for reference cycles after every 700 new
containers, and now and then among all objects, on the loop, while every client waits. What a node
serves is freed by reference counting; what it set up at the start stays. So what exists once a node
has started is never scanned again, and the rest seldom. That removes the pauses of full scans; the
median hardly changes.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, cast

import uvloop

from penstock.core.model import MILLISECOND, SECOND, Instant, Timestamp
from penstock.observability import log
from penstock.runtime.descriptors import present_limits
from penstock.runtime.executors import ExecutorOptions, NodeExecutor
from penstock.runtime.heap import HeapTrimmer
from penstock.runtime.loop_watch import HELD_NS, LoopWatch, name_of
from penstock.runtime.peer_handshake import Admit, Hello
from penstock.runtime.peer_link import LinkPoller, PeerOptions
from penstock.runtime.peer_tls import PeerTls
from penstock.runtime.peer_transport import SocketTransport
from penstock.runtime.port import Callback, DiskSync, NodeIdentity, Program, Runtime, Service
from penstock.runtime.sync_helper import InlineSync, LoopSync, SupervisedSync, SyncHelper
from penstock.runtime.timers import LoopSockets, LoopTimers

# Containers created and not yet freed before the youngest generation is scanned; then how many
# scans of each generation before the next older one is scanned. A scan holds the loop: of 150,000
# containers for some 20 ms, of the million that 20 for the second number would let come together for
# 100 to 200. Each is scanned as often either way.
THRESHOLDS = (50_000, 2, 500)
STUCK, WOUND_DOWN = 1, 0
# How long a thread (a snapshot, a checkpoint, a verification) computes before the loop gets its turn. After
# any system call the loop may have to wait for that, by default for 5 ms, and a request makes several.
SWITCH_INTERVAL_S = 0.0005
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A node that is told to stop is gone after five seconds, whatever it is doing:
#
#     0 s ── the service stops ── 4 s ── what was opened is closed ── 4.8 s: ExitWatchdog
STOP_GRACE_NS = 4 * SECOND
STOP_LIMIT_NS = 4_800 * MILLISECOND


class MachineClock:
    """CLOCK_BOOTTIME and CLOCK_REALTIME.

    CLOCK_MONOTONIC stands still while the machine sleeps, and a lease with it: the node would wake up
    and serve what others lead by now.
    """

    def __init__(self) -> None:
        # Without a wrapper in Python: every request calls it several times.
        self.now = cast(Callable[[], Instant], partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME))

    def wall(self) -> Timestamp:
        return Timestamp(time.time_ns() // MILLISECOND)


class MachineEntropy:
    """The kernel's generator."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)


def freeze_garbage_collector() -> None:
    """Exclude all present objects from cycle collection, and collect the rest seldom.

    The few cycles that a start leaves behind stay: clients would wait while they are looked for.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


def put_loop_before_threads() -> None:
    """Let threads of this process compute for a moment at a time only, while the loop has something to do."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)


class ExitWatchdog:
    """Ends the process after a while, from a thread of its own, unless it is cancelled."""

    def __init__(self, after_ns: int, leave: Callable[[int], None] = os._exit) -> None:
        self._after_ns = after_ns
        self._leave = leave
        self._timer: threading.Timer | None = None
        self._code = STUCK

    def arm(self) -> None:
        """Start the countdown: the process has been told to stop."""
        if self._timer is None:
            self._timer = threading.Timer(self._after_ns / SECOND, self._fire)
            self._timer.daemon = True
            self._timer.start()

    def wound_down(self) -> None:
        """Everything important is done; from now on the exit status is that of a clean stop."""
        self._code = WOUND_DOWN

    def call_off(self) -> None:
        """Cancel: the process ends by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        if self._code is STUCK:
            log.error("node.stop_aborted")
        self._leave(self._code)


class Supervisor:
    """Delivers the callbacks of one node until the node has ended."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        over: Callback | None = None,
        last_resort: ExitWatchdog | None = None,
    ) -> None:
        self._loop = loop
        self._last_resort = last_resort
        self._tell_over = loop.stop if over is None else over
        self._closers: list[Callback] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._service: Service | None = None
        self._stopping = False
        self._watch = LoopWatch()
        self.is_over = False
        self.failure: BaseException | None = None

    def deliver(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the node, unless the node has ended; what it raises ends the node."""
        if self.is_over:
            return
        began_ns = perf_counter_ns()
        try:
            callback(*arguments)
        except Exception as failure:
            self.fail(failure)
        ended_ns = perf_counter_ns()
        if ended_ns - began_ns > HELD_NS:
            self._watch.note(name_of(callback), ended_ns - began_ns, ended_ns)

    def own(self, close: Callback) -> None:
        """Call `close` when the node has ended, in reverse order of these calls."""
        self._closers.append(close)

    def adopt(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a task of the node (a third-party asyncio server); cancelled when the node ends."""
        task = self._loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.fail(failure)

    def run(self, start: Callable[[], Service]) -> None:
        """Start the node's service now. That may take long: there is nobody who waits."""
        if self.is_over:
            return
        try:
            self._service = start()
        except Exception as failure:
            self.fail(failure)

    def watch_signals(self) -> None:
        """SIGTERM and SIGINT stop the node gracefully; a second one stops it at once.

        So does the end of its terminal, unless SIGHUP is ignored (`nohup`).
        """
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            self._loop.add_signal_handler(number, self.stop)

        def forget() -> None:
            for number in numbers:
                self._loop.remove_signal_handler(number)

        self.own(forget)

    def stop(self) -> None:
        """Ask the service to stop, and end the node when it has or at the deadline."""
        if self._service is None or self._stopping:
            self._end()
            return
        self._stopping = True
        log.debug("node.stopping")
        if self._last_resort is not None:
            self._last_resort.arm()
        grace = self._loop.call_later(STOP_GRACE_NS / SECOND, self._stop_overdue)
        self.own(grace.cancel)
        self.deliver(self._service.stop, self._wound_down)

    def _wound_down(self) -> None:
        if self._last_resort is not None:
            self._last_resort.wound_down()
        self._end()

    def _stop_overdue(self) -> None:
        log.warning("node.stop_timeout")
        self._end()

    def fail(self, failure: BaseException) -> None:
        """End the node because of `failure`; the first one is the one that is reported."""
        if self.is_over:
            return
        self.failure = failure
        log.error("node.failed", reason=repr(failure), traceback=_traceback_of(failure))
        self._end()

    def loop_failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the node for errors that bypassed `deliver` and reached the loop."""
        failure = context.get("exception")
        self.fail(failure if failure is not None else RuntimeError(context.get("message")))

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._tell_over()

    def close(self) -> None:
        """Close what the node owned. Call it outside the loop's callbacks, once the node has ended."""
        self.is_over = True
        for task in reversed(list(self._tasks)):
            task.cancel()
            self._loop.run_until_complete(asyncio.wait((task,)))
        while self._closers:
            try:
                self._closers.pop()()
            except Exception as failure:  # the rest must be closed all the same
                log.error("node.close_failed", reason=repr(failure))
                self.failure = self.failure or failure


def _traceback_of(failure: BaseException) -> str:
    return "".join(traceback.format_exception(failure))


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """The options of the production runtime. `admit` checks peers' hellos; by default, same cluster.

    Without `sync_helper` files are synced on the loop: for disks on which that does nothing. With `tls`
    nodes prove to each other who they are.
    """

    peers: PeerOptions = field(default_factory=PeerOptions)
    lanes: ExecutorOptions = field(default_factory=ExecutorOptions)
    admit: Admit | None = None
    sync_helper: bool = True
    tls: PeerTls | None = None


def read_boot_id() -> str:
    """The id that Linux gives to each start of the machine; empty elsewhere."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def open_runtime(
    loop: asyncio.AbstractEventLoop, supervisor: Supervisor, identity: NodeIdentity, options: RuntimeOptions
) -> Runtime:
    """Build the runtime of one node on `loop`; `supervisor` closes its parts in reverse order."""
    clock = MachineClock()
    wiring = LinkPoller(
        loop,
        clock,
        supervisor.deliver,
        hello=Hello(identity, options.peers.authentication),
        admit=options.admit,
        options=options.peers,
        tls=options.tls,
    )
    sockets = LoopSockets(loop)
    timers = LoopTimers(loop, clock, supervisor.deliver, wiring.sockets_busy, sockets)
    supervisor.own(timers.close)
    lanes = NodeExecutor(loop, supervisor.deliver, options.lanes)
    supervisor.own(lanes.close)
    sync: DiskSync
    if options.sync_helper:
        helper = SyncHelper.start(loop, supervisor.fail, present_limits().synced_max)
        supervisor.own(helper.close)
        sync = SupervisedSync(loop, helper, LoopSync(sockets, clock, wiring.links), supervisor.deliver)
    else:
        sync = InlineSync(lambda done: loop.call_soon(supervisor.deliver, done))
    transport = SocketTransport(wiring, timers, lanes)
    supervisor.own(transport.close)
    return Runtime(clock, timers, transport, sync, lanes, MachineEntropy(), read_boot_id())


def run_embedded(
    program: Program,
    identity: NodeIdentity,
    starting: Callable[[Callback], None],
    options: RuntimeOptions | None = None,
) -> BaseException | None:
    """Run one node on this thread, in a process that is somebody else's; returns the exception if it failed.

    Signals, the garbage collector and the end of the process are left alone. `starting` is called before
    the node starts, with a function that stops it; any thread may call that until this function returns.
    """
    loop = uvloop.new_event_loop()
    supervisor = Supervisor(loop)
    loop.set_exception_handler(supervisor.loop_failed)

    def stop() -> None:
        loop.call_soon_threadsafe(supervisor.stop)

    try:
        loop.call_soon(
            supervisor.run,
            lambda: program(open_runtime(loop, supervisor, identity, options or RuntimeOptions())),
        )
        starting(stop)
        loop.run_forever()
    finally:
        supervisor.close()
        loop.close()
    return supervisor.failure


def run(
    program: Program, identity: NodeIdentity, options: RuntimeOptions | None = None
) -> BaseException | None:
    """Run one node until it stops; returns the exception if it failed."""
    loop = uvloop.new_event_loop()
    last_resort = ExitWatchdog(STOP_LIMIT_NS)
    supervisor = Supervisor(loop, last_resort=last_resort)
    loop.set_exception_handler(supervisor.loop_failed)

    def start() -> Service:
        # On the running loop: a signal that comes before it runs would be lost by uvloop.
        supervisor.watch_signals()
        put_loop_before_threads()
        gc.disable()
        service = program(open_runtime(loop, supervisor, identity, options or RuntimeOptions()))
        freeze_garbage_collector()
        HeapTrimmer(loop)
        return service

    try:
        loop.call_soon(supervisor.run, start)
        loop.run_forever()
    finally:
        supervisor.close()
        loop.close()
        last_resort.call_off()
    return supervisor.failure
