"""The metrics of a node as a whole, and the page that renders all metrics."""

from penstock.broker.partitions import Replica, ReplicaManager
from penstock.core.metadata import NO_LEADER, MetadataImage
from penstock.core.model import NodeId, PartitionIndex, TopicName
from penstock.observability import HistogramSnapshot, LogMetrics, LogReadings, Metrics, render
from penstock.runtime.descriptors import count_open, present_limits
from penstock.server.http import HttpResponse
from penstock.storage.log import PartitionLog

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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

    def __init__(self, partitions: ReplicaManager, declared: list[Metrics]) -> None:
        self._partitions = partitions
        self._node = NodeMetrics()
        self._node.offline_partitions.read(lambda: partitions.offline_count)
        self._node.damaged_partitions.read(lambda: len(partitions.damaged()))
        self._node.open_descriptors.read(count_open)
        self._node.descriptors_max.read(lambda: present_limits().limit)
        self._logs = LogMetrics()
        self._declared = [self._node, self._logs, *declared]
        self._watched: dict[tuple[TopicName, PartitionIndex], Replica] = {}
        self._leaders: dict[tuple[TopicName, PartitionIndex, NodeId], None] = {}
        self._image: MetadataImage | None = None
        self._followed: MetadataImage | None = None

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    @staticmethod
    def prepare() -> None:
        """Load what rendering needs; blocks, so run it off the loop."""
        render(())

    def __call__(self) -> HttpResponse:
        self._watch_logs()
        self._partitions.scrubber.count()
        if self._image is not None and self._image is not self._followed:
            self._followed = self._image
            self._read_image(self._image)
        return HttpResponse(200, render(self._declared), CONTENT_TYPE)

    def _watch_logs(self) -> None:
        present = {(replica.name.topic, replica.name.partition): replica for replica in self._partitions}
        for name, replica in list(self._watched.items()):
            if present.get(name) is not replica:
                self._logs.forget(*name)
                del self._watched[name]
        for name, replica in present.items():
            if name not in self._watched:
                self._logs.watch(*name, _readings(replica.log))
                self._watched[name] = replica

    def _read_image(self, image: MetadataImage) -> None:
        live = len(image.live_brokers())
        self._node.nodes.read(lambda: live, "live")
        fenced = len(image.brokers) - live
        self._node.nodes.read(lambda: fenced, "fenced")
        leaders = {
            (topic.name, partition.index, partition.leader): None
            for topic in image.each_topic()
            for partition in topic.partitions
            if partition.leader != NO_LEADER
        }
        for gone in self._leaders:
            if gone not in leaders:
                self._node.partition_leader.forget(*gone)
        for leader in leaders:
            if leader not in self._leaders:
                self._node.partition_leader.read(lambda: 1, *leader)
        self._leaders = leaders


def _readings(log: PartitionLog) -> LogReadings:
    return LogReadings(
        size_bytes=lambda: log.size_bytes,
        segments=lambda: len(log.segments()),
        stable_lag=lambda: log.high_watermark - log.last_stable_offset,
        appends=lambda: HistogramSnapshot(log.stats.append_buckets, log.stats.append_ns),
    )
