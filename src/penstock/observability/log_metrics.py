"""The figures of partition logs.

They stand here rather than in `storage`, which counts in plain integers and does not know
who reads them: the host of a log connects the two.
"""

from collections.abc import Callable

from penstock.observability.figures import Distribution
from penstock.observability.metrics import Metrics


class LogMetrics(Metrics):
    """How large the logs are, and what appending to them takes."""

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = self.gauge(
            "penstock_log_size_bytes", "Bytes of a partition's segment files.", ("topic", "partition")
        )
        self.segments = self.gauge(
            "penstock_log_segments", "Segment files of a partition.", ("topic", "partition")
        )
        self.append_seconds = self.seconds(
            "penstock_log_append_seconds", "Time to append batches to a log, without the sync.", ("topic",)
        )

    def watch(
        self, topic: str, partition: int, size_bytes: Callable[[], int], segments: Callable[[], int]
    ) -> Distribution:
        """Report a log from now on; its appends are to be observed in the answer, in nanoseconds."""
        self.size_bytes.read(size_bytes, topic, partition)
        self.segments.read(segments, topic, partition)
        return self.append_seconds.of(topic)

    def forget(self, topic: str, partition: int) -> None:
        """Stop reporting a log that is closed or gone; what its topic's appends took stays."""
        self.size_bytes.forget(topic, partition)
        self.segments.forget(topic, partition)
