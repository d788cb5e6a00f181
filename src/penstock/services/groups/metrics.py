"""The figures of consumer groups."""

from penstock.core.model import MILLISECOND, SECOND
from penstock.observability import Metrics

REBALANCE_BOUNDS_NS = (
    *(10 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND, 250 * MILLISECOND, 500 * MILLISECOND),
    *(1 * SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, 60 * SECOND, 300 * SECOND),
)


class GroupMetrics(Metrics):
    """What groups consume, how far they are behind, and how long their rebalances take."""

    def __init__(self) -> None:
        super().__init__()
        position = ("group", "topic", "partition")
        self.rebalance_seconds = self.seconds(
            "penstock_rebalance_seconds",
            "Time from a rebalance's beginning to its assignment.",
            ("group",),
            REBALANCE_BOUNDS_NS,
        )
        self.consumed = self.counter(
            "penstock_messages_consumed_total",
            "Records between a group's committed offsets: a commit counts those since the one before.",
            ("group", "topic"),
        )
        self.load_failures = self.counter(
            "penstock_group_load_failures_total",
            "Times that a coordinator's log could not be read; it is tried again.",
            ("partition",),
        )
        self.lag = self.gauge(
            "penstock_consumer_lag",
            "Records between a group's committed offset and the high watermark.",
            position,
        )
        self.lag_seconds = self.gauge(
            "penstock_consumer_lag_seconds",
            "Age of the first record that a group has not consumed; 0 if there is none.",
            position,
        )
