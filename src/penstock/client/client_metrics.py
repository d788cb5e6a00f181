"""What clients count about themselves, as Prometheus metrics.

    metrics = ClientMetrics()                       # in prometheus_client's default registry
    producer = Producer(metrics=metrics)            # any number of clients may share it

librdkafka reports its statistics every `statistics.interval.ms` (five seconds unless set), the last
report of each client is kept, and a scrape turns it into metrics. A client that is closed is forgotten.

| metric | labels |
|---|---|
| `penstock_client_requests_total`, `penstock_client_request_errors_total`, `penstock_client_retries_total`, `penstock_client_request_timeouts_total`, `penstock_client_disconnects_total` | client, broker |
| `penstock_client_bytes_sent_total`, `penstock_client_bytes_received_total` | client, broker |
| `penstock_client_round_trip_seconds` | client, broker, quantile |
| `penstock_client_queue_records`, `penstock_client_queue_bytes` | client |
| `penstock_client_records_sent_total`, `penstock_client_records_received_total` | client, topic |
| `penstock_client_lag_records` | client, topic, partition |
| `penstock_client_rebalances_total` | client |
"""  # noqa: E501

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

INTERVAL_MS = 5_000
_MICROSECONDS = 1e6


class _Family(NamedTuple):
    name: str
    meaning: str
    field: str


_OF_BROKER = (
    _Family("requests", "Requests sent.", "tx"),
    _Family("request_errors", "Requests that could not be sent.", "txerrs"),
    _Family("retries", "Requests that were sent again.", "txretries"),
    _Family("request_timeouts", "Requests without a response in time.", "req_timeouts"),
    _Family("disconnects", "Connections that ended.", "disconnects"),
    _Family("bytes_sent", "Bytes sent.", "txbytes"),
    _Family("bytes_received", "Bytes received.", "rxbytes"),
)
_OF_CLIENT = (
    _Family("queue_records", "Records that wait to be sent or acknowledged.", "msg_cnt"),
    _Family("queue_bytes", "Bytes of records that wait to be sent or acknowledged.", "msg_size"),
)
_OF_TOPIC = (
    _Family("records_sent", "Records sent.", "txmsgs"),
    _Family("records_received", "Records received.", "rxmsgs"),
)


class ClientMetrics:
    """The statistics of clients, as a collector of a registry."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        from prometheus_client import REGISTRY

        self._reports: dict[str, dict[str, Any]] = {}
        (registry or REGISTRY).register(self)

    def note(self, text: str | bytes) -> str:
        """Keep a report of librdkafka; returns the client's name."""
        report: dict[str, Any] = msgspec.json.decode(text)
        self._reports[report["name"]] = report
        return str(report["name"])

    def forget(self, client: str) -> None:
        """A client has ended."""
        self._reports.pop(client, None)

    def collect(self) -> "Iterator[Metric]":
        """The last reports as metrics; called by the registry."""
        # Clients report on threads of their own.
        reports = list(self._reports.items())
        yield from _broker_families(reports)
        yield from _client_families(reports)
        yield from _topic_families(reports)


class StatisticsReceiver:
    """What a client does with its statistics: keep them for a scrape, and pass them on."""

    def __init__(self, metrics: ClientMetrics, librdkafka: dict[str, Any]) -> None:
        self._metrics = metrics
        self._also = librdkafka.get("stats_cb")
        self._client = ""
        librdkafka["stats_cb"] = self._receive
        librdkafka.setdefault("statistics.interval.ms", INTERVAL_MS)

    def close(self) -> None:
        """The client has ended."""
        self._metrics.forget(self._client)

    def _receive(self, text: str) -> None:
        self._client = self._metrics.note(text)
        if self._also is not None:
            self._also(text)


Reports = list[tuple[str, dict[str, Any]]]


def _broker_families(reports: Reports) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    # Before a broker is known by its number it is listed as an address as well.
    brokers = [
        (client, broker["nodename"], broker)
        for client, report in reports
        for broker in report.get("brokers", {}).values()
        if broker.get("nodeid", -1) >= 0
    ]
    for family in _OF_BROKER:
        counter = CounterMetricFamily(_name(family), family.meaning, labels=("client", "broker"))
        for client, name, broker in brokers:
            counter.add_metric((client, name), broker.get(family.field, 0))
        yield counter
    times = GaugeMetricFamily(
        "penstock_client_round_trip_seconds",
        "Time from a request to its response, in the last interval.",
        labels=("client", "broker", "quantile"),
    )
    for client, name, broker in brokers:
        for quantile, field in (("0.5", "p50"), ("0.99", "p99")):
            times.add_metric((client, name, quantile), broker.get("rtt", {}).get(field, 0) / _MICROSECONDS)
    yield times


def _client_families(reports: Reports) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for family in _OF_CLIENT:
        gauge = GaugeMetricFamily(_name(family), family.meaning, labels=("client",))
        for client, report in reports:
            gauge.add_metric((client,), report.get(family.field, 0))
        yield gauge
    rebalances = CounterMetricFamily(
        "penstock_client_rebalances", "Rebalances of the consumer's group.", labels=("client",)
    )
    for client, report in reports:
        if "cgrp" in report:
            rebalances.add_metric((client,), report["cgrp"].get("rebalance_cnt", 0))
    yield rebalances


def _topic_families(reports: Reports) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    topics = [
        (client, topic["topic"], topic.get("partitions", {}))
        for client, report in reports
        for topic in report.get("topics", {}).values()
    ]
    for family in _OF_TOPIC:
        counter = CounterMetricFamily(_name(family), family.meaning, labels=("client", "topic"))
        for client, name, partitions in topics:
            counter.add_metric((client, name), sum(one.get(family.field, 0) for one in partitions.values()))
        yield counter
    lag = GaugeMetricFamily(
        "penstock_client_lag_records",
        "Records of a partition behind what was processed.",
        labels=("client", "topic", "partition"),
    )
    for client, name, partitions in topics:
        for number, partition in partitions.items():
            if (records := _lag(partition)) is not None:
                lag.add_metric((client, name, number), records)
    yield lag


def _lag(partition: Mapping[str, Any]) -> int | None:
    for field in ("consumer_lag_stored", "consumer_lag"):
        if partition.get(field, -1) >= 0:
            return int(partition[field])
    return None


def _name(family: _Family) -> str:
    return f"penstock_client_{family.name}"
