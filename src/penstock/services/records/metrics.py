"""The figures of producing."""

from penstock.core.model import Why
from penstock.observability import CounterValue, HistogramValue, Metrics


class ProduceMetrics(Metrics):
    """What came in, by topic."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = self.counter("penstock_messages_produced_total", "Records appended.", ("topic",))
        self.bytes = self.counter(
            "penstock_bytes_produced_total", "Bytes of record batches appended.", ("topic",)
        )
        self.errors = self.counter(
            "penstock_produce_errors_total", "Batches that were refused, by reason.", ("topic", "error")
        )
        self.seconds_to_ack = self.seconds(
            "penstock_produce_seconds", "Time from a batch's arrival to its acknowledgement.", ("topic",)
        )
        # Records, bytes and the time to the acknowledgement: what every batch counts, in place.
        self.by_topic: dict[str, tuple[CounterValue, CounterValue, HistogramValue]] = {}

    def refused(self, topic: str, why: Why) -> None:
        self.errors.of(topic, why.name.lower()).count += 1

    def figures_of(self, topic: str) -> tuple[CounterValue, CounterValue, HistogramValue]:
        """The row of `by_topic`, made when a topic is first met."""
        figures = (self.messages.of(topic), self.bytes.of(topic), self.seconds_to_ack.of(topic))
        self.by_topic[topic] = figures
        return figures
