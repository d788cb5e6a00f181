"""The figures of the Kafka door."""

from penstock.core.protocol import Api
from penstock.observability import HistogramValue, Metrics


class KafkaMetrics(Metrics):
    """Requests by API, and what went wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.request_seconds = self.seconds(
            "penstock_request_seconds",
            "Time from a request's arrival to its answer; `serve` is the handler, `total` includes waiting.",
            ("api", "stage"),
        )
        self.failures = self.counter(
            "penstock_handler_failures_total", "Requests that ended in an error nobody foresaw.", ()
        )
        self.protocol_errors = self.counter(
            "penstock_protocol_errors_total", "Connections closed because their bytes broke the protocol.", ()
        )
        self.connections = self.gauge("penstock_connections", "Open connections, by listener.", ("listener",))
        self.in_flight_bytes = self.gauge(
            "penstock_in_flight_bytes",
            "Bytes of requests that are not complete, and of answers that are not read yet.",
            ("kind",),
        )
        self.held_back = self.counter(
            "penstock_connections_held_back_total",
            "Times that a connection was not read because the node's bytes in flight were used up.",
            ("kind",),
        )
        # The handler's time and the whole time, by API key: what every request counts.
        self.by_api: dict[int, tuple[HistogramValue, HistogramValue]] = {}

    def figures_of(self, api: Api) -> tuple[HistogramValue, HistogramValue]:
        """The row of `by_api`, made when an API is first asked for."""
        served, answered = (self.request_seconds.of(api.name, stage) for stage in ("serve", "total"))
        self.by_api[api.key] = (served, answered)
        return served, answered
