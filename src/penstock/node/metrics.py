"""The metrics of a node as a whole, and the page that renders all metrics.

Of a node with very many partitions the page takes a good part of a second of the loop's time: it is made in
slices, once for all who ask meanwhile, and is good for ten times as long as it took to make, five seconds
at most. So those who scrape take a tenth of the loop, however many they are; a small page is always fresh.
"""

from collections.abc import Callable, Generator, Iterator

from penstock.broker.partitions import Replica, ReplicaManager
from penstock.core.metadata import NO_LEADER, MetadataImage
from penstock.core.model import MILLISECOND, SECOND, Instant, NodeId, PartitionIndex, TopicName
from penstock.observability import (
    HistogramSnapshot,
    LogMetrics,
    LogReadings,
    Metrics,
    render,
    render_in_steps,
)
from penstock.runtime.descriptors import count_open, present_limits
from penstock.runtime.port import Clock
from penstock.runtime.sliced_work import Slices
from penstock.server.http import HttpResponse, LateResponse
from penstock.storage.log import PartitionLog

SLICE_NS = 1 * MILLISECOND
GOOD_TIMES, GOOD_NS_MAX = 10, 5 * SECOND
# Topics and partitions that are looked at in one step.
STEP_ROWS = 32
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


Leader = tuple[TopicName, PartitionIndex, NodeId]


class NodeMetrics(Metrics):
    """Brokers by status, and partition leaders."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = self.gauge("penstock_nodes", "Brokers of the cluster, by status.", ("status",))
        self.partition_leader = self.gauge(
            "penstock_partition_leader",
            "1 for the node that leads a partition.",
            ("topic", "partition", "node"),
        )
        self.offline_partitions = self.gauge(
            "penstock_offline_partitions",
            "Partitions with a replica on this node whose log cannot be used: see partition.offline, "
            "partition.not_opened.",
        )
        self.damaged_partitions = self.gauge(
            "penstock_damaged_partitions",
            "Partitions whose log is open on this node, and damaged or stopped: see partition.corrupt_range.",
        )
        self.open_descriptors = self.gauge(
            "penstock_open_descriptors", "Descriptors that this process has open: files and connections."
        )
        self.descriptors_max = self.gauge(
            "penstock_descriptors_max", "Descriptors that this process may have open."
        )


class MetricsPage:
    """Updates the metrics that depend on the metadata, then renders all metrics."""

    def __init__(
        self,
        partitions: ReplicaManager,
        declared: list[Metrics],
        clock: Clock,
        run: Callable[[Slices], None],
    ) -> None:
        """`run` does long work in slices."""
        self._partitions = partitions
        self._clock = clock
        self._run = run
        # Who waits for the page that is being made, if one is.
        self._waiting: list[Callable[[HttpResponse], None]] = []
        self._made = HttpResponse(200, b"", CONTENT_TYPE)
        self._good_until = Instant(0)
        self._node = NodeMetrics()
        self._node.offline_partitions.read(lambda: partitions.offline_count)
        self._node.damaged_partitions.read(lambda: len(partitions.damaged()))
        self._node.open_descriptors.read(count_open)
        self._node.descriptors_max.read(lambda: present_limits().limit)
        self._logs = LogMetrics()
        self._declared = [self._node, self._logs, *declared]
        self._watched: dict[tuple[TopicName, PartitionIndex], Replica] = {}
        self._leaders: dict[Leader, None] = {}
        self._image: MetadataImage | None = None
        self._followed: MetadataImage | None = None

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    @staticmethod
    def prepare() -> None:
        """Load what rendering needs; blocks, so run it off the loop."""
        render(())

    def __call__(self) -> HttpResponse | LateResponse:
        return self._made if self._clock.now() < self._good_until else self._wait

    def _wait(self, done: Callable[[HttpResponse], None]) -> None:
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._run(self._make())

    def _make(self) -> Iterator[None]:
        """Make the page, a millisecond at a time."""
        now = self._clock.now
        took_ns, began = 0, now()
        for _ in self._steps():
            elapsed_ns = now() - began
            if elapsed_ns >= SLICE_NS:
                took_ns += elapsed_ns
                yield
                began = now()
        took_ns += now() - began
        self._good_until = Instant(now() + min(GOOD_TIMES * took_ns, GOOD_NS_MAX))
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(self._made)

    def _steps(self) -> Iterator[None]:
        yield from self._watch_logs()
        yield from self._partitions.scrubber.count()
        if self._image is not None and self._image is not self._followed:
            self._followed = self._image
            yield from self._read_image(self._image)
        page = yield from render_in_steps(self._declared)
        self._made = HttpResponse(200, page, CONTENT_TYPE)

    def _watch_logs(self) -> Iterator[None]:
        present: dict[tuple[TopicName, PartitionIndex], Replica] = {}
        for count, replica in enumerate(list(self._partitions)):
            present[replica.name.topic, replica.name.partition] = replica
            if count % STEP_ROWS == 0:
                yield
        for count, (name, replica) in enumerate(list(self._watched.items())):
            if present.get(name) is not replica:
                self._logs.forget(*name)
                del self._watched[name]
            if count % STEP_ROWS == 0:
                yield
        for name, replica in present.items():
            if name not in self._watched:
                self._logs.watch(*name, _readings(replica.log))
                self._watched[name] = replica
                yield

    def _read_image(self, image: MetadataImage) -> Iterator[None]:
        live = len(image.live_brokers())
        self._node.nodes.read(lambda: live, "live")
        fenced = len(image.brokers) - live
        self._node.nodes.read(lambda: fenced, "fenced")
        leaders = yield from _leaders(image)
        for count, gone in enumerate(self._leaders):
            if gone not in leaders:
                self._node.partition_leader.forget(*gone)
            if count % STEP_ROWS == 0:
                yield
        for leader in leaders:
            if leader not in self._leaders:
                self._node.partition_leader.read(lambda: 1, *leader)
                yield
        self._leaders = leaders


def _leaders(image: MetadataImage) -> Generator[None, None, dict[Leader, None]]:
    leaders: dict[Leader, None] = {}
    for topic in image.each_topic():
        for count, partition in enumerate(topic.partitions):
            if partition.leader != NO_LEADER:
                leaders[topic.name, partition.index, partition.leader] = None
            if count % STEP_ROWS == 0:
                yield
    return leaders


def _readings(log: PartitionLog) -> LogReadings:
    return LogReadings(
        size_bytes=lambda: log.size_bytes,
        segments=lambda: len(log.segments()),
        stable_lag=lambda: log.high_watermark - log.last_stable_offset,
        appends=lambda: HistogramSnapshot(log.stats.append_buckets, log.stats.append_ns),
    )
