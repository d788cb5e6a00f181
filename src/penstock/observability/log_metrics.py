"""The figures of partition logs.

`storage` counts in plain integers and does not know who reads them; the host of a log
connects the two with `watch`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.model import MICROSECOND, MILLISECOND, SECOND
from penstock.observability.figures import Spread
from penstock.observability.metrics import Metrics

# The buckets in which a log counts its appends; a test holds the two together.
APPEND_BOUNDS_NS = (
    *(10 * MICROSECOND, 25 * MICROSECOND, 50 * MICROSECOND, 100 * MICROSECOND, 250 * MICROSECOND),
    *(500 * MICROSECOND, 1 * MILLISECOND, 2_500 * MICROSECOND, 5 * MILLISECOND, 10 * MILLISECOND),
    *(50 * MILLISECOND, 250 * MILLISECOND, 1 * SECOND),
)


@dataclass(frozen=True, slots=True)
class LogReadings:
    """How to ask a log for its figures."""

    size_bytes: Callable[[], int]
    segments: Callable[[], int]
    appends: Callable[[], Spread]


class LogMetrics(Metrics):
    """How large the logs are, and what appending to them takes."""

    def __init__(self) -> None:
        super().__init__()
        partition = ("topic", "partition")
        self.size_bytes = self.gauge(
            "penstock_log_size_bytes", "Bytes of a partition's segment files.", partition
        )
        self.segments = self.gauge("penstock_log_segments", "Segment files of a partition.", partition)
        self.append_seconds = self.seconds(
            "penstock_log_append_seconds",
            "Time to append batches to a log, without the sync.",
            ("topic",),
            APPEND_BOUNDS_NS,
        )

    def watch(self, topic: str, partition: int, readings: LogReadings) -> None:
        """Report a log from now on."""
        self.size_bytes.read(readings.size_bytes, topic, partition)
        self.segments.read(readings.segments, topic, partition)
        self.append_seconds.of(topic).include((topic, partition), readings.appends)

    def forget(self, topic: str, partition: int) -> None:
        """Stop reporting a log that is about to be closed; what its appends took stays with its topic."""
        self.size_bytes.forget(topic, partition)
        self.segments.forget(topic, partition)
        self.append_seconds.of(topic).settle((topic, partition))
