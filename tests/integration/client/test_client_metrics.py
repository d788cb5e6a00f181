"""Statistics of clients, as a scrape shows them."""

import json

from prometheus_client import CollectorRegistry, generate_latest

from penstock.client import ClientMetrics, Consumer, Producer, TopicPartition

SECONDS = 30.0


def sample(registry: CollectorRegistry, name: str, **labels: str) -> list[float]:
    """The values of a metric for every client."""
    return [
        one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    ]


def test_what_clients_count_is_scraped_until_they_are_closed(bootstrap: str, topic: str) -> None:
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)
    reports: list[str] = []
    settings = {"statistics.interval.ms": 100, "stats_cb": reports.append}

    with (
        Producer(settings, bootstrap_servers=bootstrap, metrics=metrics) as producer,
        Consumer(settings, bootstrap_servers=bootstrap, metrics=metrics) as consumer,
    ):
        for number in range(5):
            producer.send(topic, str(number), partition=0)
        producer.flush(SECONDS)
        consumer.assign({TopicPartition(topic, 0): 0})
        consumer.poll_batch(5, SECONDS)
        received = "penstock_client_records_received_total"
        sent = "penstock_client_records_sent_total"
        # Reports come with the next polls, those of the producer by a thread of its own.
        for _ in range(300):
            consumer.poll(0.1)
            if 5 in sample(registry, received, topic=topic) and 5 in sample(registry, sent, topic=topic):
                break

        assert 5 in sample(registry, received, topic=topic)
        assert 5 in sample(registry, sent, topic=topic)
        assert all(
            count > 0 for count in sample(registry, "penstock_client_requests_total", broker=bootstrap)
        )
        assert len(sample(registry, "penstock_client_requests_total", broker=bootstrap)) == 2
        assert sample(registry, "penstock_client_queue_records") == [0, 0]
        assert b"penstock_client_round_trip_seconds{" in generate_latest(registry)
        assert reports

    assert sample(registry, "penstock_client_queue_records") == []


def test_the_lag_is_counted_from_what_was_processed() -> None:
    registry = CollectorRegistry()
    partitions = {
        "0": {"consumer_lag": 7, "consumer_lag_stored": 2},
        "1": {"consumer_lag": 7, "consumer_lag_stored": -1},
        "-1": {"consumer_lag": -1, "consumer_lag_stored": -1},
    }
    report = {"name": "c#1", "topics": {"t": {"topic": "t", "partitions": partitions}}}

    ClientMetrics(registry).note(json.dumps(report))

    assert sample(registry, "penstock_client_lag_records", client="c#1", topic="t") == [2, 7]
