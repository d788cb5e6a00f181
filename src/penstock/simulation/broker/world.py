"""One run: a node, its clients, a nemesis, and the judgement."""

from dataclasses import dataclass
from uuid import UUID

from penstock.app.backstage import Backstage, NodeStorage
from penstock.app.options import NodeOptions
from penstock.core.metadata import CreatedTopic
from penstock.core.model import MILLISECOND, SECOND, Instant, NodeId, Refused, StorageError
from penstock.gateways.kafka.backend import Backend
from penstock.runtime import Callback, Runtime, Timer
from penstock.services.partitions import Partition
from penstock.services.records import Fetched, FetchLimits, Wanted
from penstock.services.topics import NewTopic
from penstock.simulation.broker.clients import Consumer, ProducerLife, ProducerMemory, values_in
from penstock.simulation.checkers.log import LogHistory, check_log
from penstock.simulation.faults import FaultKind, FaultPlan, Nemesis
from penstock.simulation.network import FAIR
from penstock.simulation.verdict import Verdict
from penstock.simulation.world import World
from penstock.storage.directory import DataDirectory
from penstock.storage.disk import Disk

TOPIC = "orders"
DIRECTORY_ID = UUID(int=7)
STEP_MS = 3
HEALING_NS = 60 * SECOND
NODE = NodeOptions(data_dir="", node_id=NodeId(1), listeners=())
POWER_CUTS = FaultPlan(
    (FaultKind.POWER_CUT, FaultKind.POWER_CUT_IN_WRITE, FaultKind.KILL, FaultKind.FAILED_SYNC),
    every_ns=120 * MILLISECOND,
    lasting_ns=60 * MILLISECOND,
    weather=FAIR,
)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How much is sent, and how long the trouble lasts."""

    producers: int = 3
    batches: int = 300
    faulty_ns: int = 4 * SECOND
    plan: FaultPlan = POWER_CUTS


class BrokerLife:
    """The node's services and its clients' connections, in one life."""

    def __init__(self, runtime: Runtime, disk: Disk, run: "BrokerRun") -> None:
        self._runtime = runtime
        self._run = run
        self._timer: Timer | None = None
        self.backend: Backend | None = None
        self._producers: list[ProducerLife] = []
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, DIRECTORY_ID))
        self._backstage = Backstage(runtime, storage, run.node, ())
        run.life = self
        self._backstage.start(self._ready)

    def _ready(self, backend: Backend) -> None:
        self.backend = backend
        if backend.controller.image.topic(TOPIC) is None:
            backend.topics.create([NewTopic(TOPIC, partitions=1)], self._created)
        else:
            self._connect(backend)

    def _created(self, outcome: list[CreatedTopic | Refused]) -> None:
        assert self.backend is not None
        if isinstance(outcome[0], CreatedTopic):
            self._connect(self.backend)

    def _connect(self, backend: Backend) -> None:
        partition = backend.partitions.find(TOPIC, 0)
        if partition is None:
            return
        history = self._run.history
        self._producers = [
            ProducerLife(memory, backend, partition, history, self._run.failures.append)
            for memory in self._run.producers
        ]
        for producer in self._producers:
            producer.start()
        self._consumer = Consumer(backend, partition, history, partition.log.start)
        self._step()

    def _step(self) -> None:
        if self._consumer.partition.stopped is not None:
            # On a single node nobody else can lead: an operator restarts it.
            raise StorageError(str(self._consumer.partition.stopped))
        for producer in self._producers:
            producer.go_on()
        self._consumer.poll()
        deadline = Instant(self._runtime.clock.now() + STEP_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._step)

    def stop(self, done: Callback) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._backstage.close()
        done()


class BrokerRun:
    """What outlives the node."""

    def __init__(self, options: BrokerOptions, node: NodeOptions) -> None:
        self.node = node
        self.history = LogHistory()
        self.failures: list[str] = []
        self.producers = [
            ProducerMemory(f"producer-{number}", options.batches) for number in range(options.producers)
        ]
        self.life: BrokerLife | None = None

    @property
    def finished(self) -> bool:
        return all(producer.finished for producer in self.producers)


def run_broker(seed: int, options: BrokerOptions | None = None, node: NodeOptions = NODE) -> Verdict:
    """Run one world to its end and judge it. The same arguments give the same verdict."""
    options = options or BrokerOptions()
    world, run = World(seed), BrokerRun(options, node)
    machine = world.add("broker", lambda runtime, disk: BrokerLife(runtime, disk, run))
    machine.pace.work_max_ns = MILLISECOND
    nemesis = Nemesis(world, options.plan)
    world.start_all()
    nemesis.begin()
    world.run(options.faulty_ns, lambda: bool(world.failures or run.failures))
    nemesis.end()
    world.run(HEALING_NS, lambda: run.finished or bool(world.failures or run.failures))
    anomalies = [*world.failures, *run.failures]
    if not anomalies and not run.finished:
        anomalies.append(f"stuck: unacknowledged {HEALING_NS // SECOND} s after the last fault")
    if not anomalies:
        # Whatever is in memory only, the last power cut takes.
        machine.cut_power()
        machine.start()
        final = _read_to_the_end(world, run)
        anomalies += check_log(run.history, final)
    return Verdict(
        seed=seed,
        anomalies=tuple(anomalies),
        operations=sum(map(len, run.history.sent.values())),
        events=world.scheduler.events,
        virtual_ms=world.scheduler.now // MILLISECOND,
        faults=dict(sorted(nemesis.counts.items())),
        trace=world.trace.digest(),
    )


def _read_to_the_end(world: World, run: BrokerRun) -> list[tuple[int, bytes]]:
    final: list[tuple[int, bytes]] = []
    world.run(HEALING_NS, lambda: run.life is not None and _partition(run.life) is not None)
    life = run.life
    assert life is not None
    assert life.backend is not None
    partition = _partition(life)
    assert partition is not None
    fetching = life.backend.fetching
    at, end = int(partition.log.start), partition.high_watermark
    limits = FetchLimits(min_bytes=1, max_bytes=1 << 20, max_wait_ms=0)
    while at < end:
        found: list[Fetched] = []
        fetching.fetch([Wanted(partition, at, 1 << 20)], limits, found.extend)
        final += [pair for pair in values_in(found[0]) if pair[0] >= at]
        assert final and final[-1][0] >= at, "nothing is found below the high watermark"  # noqa: PT018
        at = final[-1][0] + 1
    return final


def _partition(life: BrokerLife) -> Partition | None:
    return life.backend.partitions.find(TOPIC, 0) if life.backend is not None else None
