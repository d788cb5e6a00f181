"""A simulated machine: its disk, its clocks, and the incarnations of the node that runs on it."""

import random
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from penstock.core.model import SECOND, NodeId
from penstock.runtime import NodeIdentity, Runtime, Service
from penstock.runtime.peer_handshake import NO_CLUSTER
from penstock.sim.clocks import SimulatedClock, SimulatedEntropy, SimulatedTimers
from penstock.sim.disk_and_executors import DiskSpeed, SimulatedExecutor, SimulatedSync
from penstock.sim.incarnation import Incarnation
from penstock.sim.network import SimulatedNetwork, SimulatedTransport
from penstock.storage.disk import CrashableDisk, Disk, FailingDisk, FailureRule

SimulatedProgram: TypeAlias = Callable[[Runtime, Disk], Service]
_DRIFT_PPM_MAX = 200
_SKEW_MS_MAX = 500
_CLOCK_BASE_MAX = 1_000_000 * SECOND


class SimulatedNode:
    """One machine of a world and the program it runs. `name` is also its host name."""

    def __init__(
        self,
        name: str,
        number: int,
        program: SimulatedProgram,
        network: SimulatedNetwork,
        *,
        seed: str,
        died: Callable[["SimulatedNode", BaseException], None],
    ) -> None:
        self.name = name
        self.incarnations = 0
        self._boots = 1
        self.pace = DiskSpeed()
        self._program = program
        self._network = network
        self._died = died
        self._seed = f"{seed}/{name}"
        self._luck = random.Random(self._seed)
        self._identity = NodeIdentity(
            NO_CLUSTER, NodeId(number), UUID(bytes=random.Random(f"{self._seed}/directory").randbytes(16))
        )
        self._drift_ppm = self._luck.randint(-_DRIFT_PPM_MAX, _DRIFT_PPM_MAX)
        self._skew_ms = self._luck.randint(-_SKEW_MS_MAX, _SKEW_MS_MAX)
        # How wrong its wall clock ever was: never less, and never more.
        self.skews_ms = (self._skew_ms, self._skew_ms)
        self._cache = CrashableDisk()
        self._disk = FailingDisk(self._cache)
        self._clock: SimulatedClock | None = None
        self._incarnation: Incarnation | None = None
        self._service: Service | None = None
        self._stopping = False
        # Whether the last incarnation fell by itself, perhaps in the middle of a write.
        self.has_failed = False
        # Whether its disk was ever told to fail since the present incarnation began.
        self.disk_has_failed = False

    @property
    def identity(self) -> NodeIdentity:
        """Who it says it is to its peers."""
        return self._identity

    @property
    def is_up(self) -> bool:
        return self._incarnation is not None and self._incarnation.alive

    @property
    def incarnation(self) -> Incarnation | None:
        """The present incarnation, or the last one."""
        return self._incarnation

    @property
    def disk(self) -> CrashableDisk:
        """What is on the disk now, for the checkers."""
        return self._cache

    def start(self) -> None:
        """Begin a new incarnation from what is on the disk."""
        assert not self.is_up
        self.incarnations += 1
        self._network.reconnect(self.name)
        luck = random.Random(f"{self._seed}/{self.incarnations}")
        life = Incarnation(self.name, self._network.scheduler, self._network.trace, luck, self._fail)
        base = luck.randint(0, _CLOCK_BASE_MAX)
        self._clock = SimulatedClock(life.scheduler, base, self._drift_ppm, self._skew_ms)
        self._disk = FailingDisk(self._cache)
        self.disk_has_failed = False
        runtime = Runtime(
            self._clock,
            SimulatedTimers(life, self._clock),
            SimulatedTransport(self._network, life, self._identity),
            SimulatedSync(life, self.pace),
            SimulatedExecutor(life, self.pace),
            SimulatedEntropy(luck),
            f"{self.name}/{self._boots}",
        )
        self._incarnation, self._service, self._stopping = life, None, False
        life.deliver("start", self.incarnations, self._run, runtime)
        self.has_failed = not life.alive

    def _run(self, runtime: Runtime) -> None:
        self._service = self._program(runtime, self._disk)

    def _fail(self, failure: BaseException) -> None:
        self.has_failed = True
        self._died(self, failure)

    def kill(self) -> None:
        """End the process as `kill -9` does: what it wrote is in the page cache of its kernel still."""
        self._end(power_lost=False)
        self._cache = self._cache.copy()

    def cut_power(self) -> None:
        """End the machine: of what was not synced, chance decides what is left."""
        self._end(power_lost=True)
        self._boots += 1
        self._cache = self._cache.crash(self._luck)

    def replace_disk(self) -> None:
        """Put an empty disk into a machine that is down: its node will be another directory."""
        assert not self.is_up
        self._cache = CrashableDisk()
        self._identity = self._identity._replace(directory_id=UUID(bytes=self._luck.randbytes(16)))

    def _end(self, *, power_lost: bool) -> None:
        if self._incarnation is not None:
            self._incarnation.end()
        self._service = None
        self._network.disconnect(self.name, power_lost=power_lost)

    def stop(self) -> None:
        """Ask the service to wind down, once; the process ends when it has."""
        assert self._incarnation is not None
        if self._service is None:
            self.kill()
        elif not self._stopping:
            self._stopping = True
            self._incarnation.deliver("stop", 0, self._service.stop, self.kill)

    def pause(self) -> None:
        if self._incarnation is not None:
            self._incarnation.pause()

    def resume(self) -> None:
        if self._incarnation is not None:
            self._incarnation.resume()

    def jump_clock(self, by_ms: int) -> None:
        """Move the wall clock; the monotonic one does not notice."""
        self._skew_ms += by_ms
        self.skews_ms = (min(self.skews_ms[0], self._skew_ms), max(self.skews_ms[1], self._skew_ms))
        if self._clock is not None:
            self._clock.skew_ms = self._skew_ms

    def set_clock(self) -> None:
        """Set the wall clock right."""
        self.jump_clock(-self._skew_ms)

    def fail_disk(self, failure: FailureRule) -> None:
        self.disk_has_failed = True
        self._disk.fail(failure)

    def heal_disk(self) -> None:
        self._disk.heal()
        self.pace.slowness = 1

    def cut_power_at(self, operation: int | None) -> None:
        """Cut the power in the middle of the n-th disk operation from now; None: cancel it."""
        self._cache.cut_power_at(operation)
