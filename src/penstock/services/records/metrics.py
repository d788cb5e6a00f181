"""The figures of producing."""

from penstock.core.model import Why
from penstock.observability import Distribution, Metrics, Tally


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
        self._by_topic: dict[str, tuple[Tally, Tally, Distribution]] = {}

    def produced(self, topic: str, messages: int, size_bytes: int) -> None:
        """A batch is in the log."""
        tallies = self._by_topic.get(topic) or self._remember(topic)
        tallies[0].count += messages
        tallies[1].count += size_bytes

    def acknowledged(self, topic: str, elapsed_ns: int) -> None:
        """A batch is as durable as it was asked to be."""
        (self._by_topic.get(topic) or self._remember(topic))[2].observe(elapsed_ns)

    def refused(self, topic: str, why: Why) -> None:
        self.errors.of(topic, why.name.lower()).count += 1

    def _remember(self, topic: str) -> tuple[Tally, Tally, Distribution]:
        figures = (self.messages.of(topic), self.bytes.of(topic), self.seconds_to_ack.of(topic))
        self._by_topic[topic] = figures
        return figures
