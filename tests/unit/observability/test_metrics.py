from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.model import StorageError
from penstock.observability import EventMetrics, HistogramSnapshot, LogMetrics, LogReadings, Metrics, render
from penstock.observability.events import EventLog
from penstock.observability.metrics import (
    APPEND_BOUNDS_NS,
    Counter,
    FamilyInfo,
    Gauge,
    Histogram,
    HistogramValue,
)
from penstock.storage.log.types import APPEND_BOUNDS_NS as STORAGE_BOUNDS_NS
from penstock.storage.log.types import LogStats


class KitchenMetrics(Metrics):
    def __init__(self) -> None:
        super().__init__()
        self.meals = self.counter("kitchen_meals_total", "Meals.", ("dish",))
        self.guests = self.gauge("kitchen_guests", "Guests.", label_sets_max=2, labels=("room",))
        self.cooking = self.seconds("kitchen_cooking_seconds", "Time to cook.", ("dish",))


def samples(*metrics: Metrics) -> dict[tuple[str, str], float]:
    """What a Prometheus server would read: its own parser, not our writer, judges."""
    families = text_string_to_metric_families(render(metrics).decode())
    return {
        (
            sample.name,
            ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items())),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_counters_are_rendered_with_their_labels() -> None:
    metrics = KitchenMetrics()
    soup = metrics.meals.of("soup")

    soup.count += 2
    metrics.meals.of("soup").count += 1
    metrics.meals.of('"\n\\').count += 1

    assert samples(metrics)["kitchen_meals_total", "dish=soup"] == 3
    assert samples(metrics)["kitchen_meals_total", 'dish="\n\\'] == 1


def test_gauges_are_read_when_somebody_looks() -> None:
    metrics = KitchenMetrics()
    guests = [0]
    metrics.guests.read(lambda: guests[0], "hall")

    guests[0] = 7

    assert samples(metrics)["kitchen_guests", "room=hall"] == 7


def test_a_gauge_that_cannot_be_read_costs_one_sample_only() -> None:
    metrics = KitchenMetrics()

    def closed() -> float:
        raise StorageError("closed")

    metrics.guests.read(closed, "cellar")
    metrics.guests.read(lambda: 1, "hall")

    assert ("kitchen_guests", "room=cellar") not in samples(metrics)
    assert samples(metrics)["kitchen_guests", "room=hall"] == 1


def test_histograms_are_cumulative_in_seconds_and_a_bound_belongs_to_its_bucket() -> None:
    metrics = KitchenMetrics()
    cooking = metrics.cooking.of("soup")

    for elapsed_ns in (0, 10_000, 10_001, 60_000_000_000):
        cooking.observe(elapsed_ns)

    read = samples(metrics)
    assert read["kitchen_cooking_seconds_bucket", "dish=soup,le=1e-05"] == 2
    assert read["kitchen_cooking_seconds_bucket", "dish=soup,le=10.0"] == 3
    assert read["kitchen_cooking_seconds_bucket", "dish=soup,le=+Inf"] == 4
    assert read["kitchen_cooking_seconds_count", "dish=soup"] == 4
    assert read["kitchen_cooking_seconds_sum", "dish=soup"] == pytest.approx(60.000020001)


def test_every_value_lands_in_the_bucket_that_a_plain_search_finds() -> None:
    bounds = (1, 5, 10)
    for value in range(-1, 13):
        spread = HistogramValue(bounds)

        spread.observe(value)

        expected = next((i for i, bound in enumerate(bounds) if value <= bound), len(bounds))
        assert spread.counts.index(1) == expected


def test_label_sets_beyond_the_limit_share_one_called_other_and_are_counted() -> None:
    counter = Counter(FamilyInfo("invented_topics_total", "Meals.", ("topic",), label_sets_max=2))

    for topic in range(5):
        counter.of(topic).count += 1

    assert {labels: tally.count for labels, tally in counter.figures.items()} == {
        ("0",): 1,
        ("1",): 1,
        ("other",): 3,
    }
    assert counter.overflowed == 3


def test_gauges_beyond_the_limit_are_left_out_and_counted() -> None:
    metrics = KitchenMetrics()

    for room in range(5):
        metrics.guests.read(lambda: 1, room)

    read = samples(metrics)
    assert sum(name == "kitchen_guests" for name, _ in read) == 2
    assert read["penstock_metric_label_sets_dropped_total", "metric=kitchen_guests"] == 3


def test_what_is_forgotten_is_gone_and_makes_room() -> None:
    metrics = KitchenMetrics()
    metrics.guests.read(lambda: 1, "a")
    metrics.guests.read(lambda: 1, "b")

    metrics.guests.forget("a")
    metrics.guests.read(lambda: 2, "c")

    assert set(metrics.guests.figures) == {("b",), ("c",)}
    metrics.meals.forget("never there")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Counter(FamilyInfo("no_suffix", "X.")),
        lambda: Histogram(FamilyInfo("x_seconds", "X."), (2, 1)),
        lambda: Counter(FamilyInfo("x_total", "X.", ("topic",))).of(),
        lambda: Gauge(FamilyInfo("x", "X.")).read(lambda: 1, "label"),
    ],
)
def test_a_wrong_declaration_or_use_is_a_bug(wrong: Callable[[], object]) -> None:
    with pytest.raises(AssertionError):
        wrong()


def took_a_millisecond(stats: LogStats) -> None:
    """What an append counts that took so long."""
    stats.append_ns += 1_000_000
    stats.append_buckets[STORAGE_BOUNDS_NS.index(1_000_000)] += 1


def test_a_watched_log_reports_its_size_segments_and_appends() -> None:
    metrics = LogMetrics()
    stats = LogStats()
    readings = LogReadings(
        lambda: 4096, lambda: 2, lambda: 7, lambda: HistogramSnapshot(stats.append_buckets, stats.append_ns)
    )
    metrics.watch("orders", 3, readings)

    took_a_millisecond(stats)
    metrics.append_seconds.of("orders").observe(2_000_000)

    read = samples(metrics)
    assert read["penstock_log_size_bytes", "partition=3,topic=orders"] == 4096
    assert read["penstock_log_segments", "partition=3,topic=orders"] == 2
    assert read["penstock_last_stable_offset_lag", "partition=3,topic=orders"] == 7
    assert read["penstock_log_append_seconds_sum", "topic=orders"] == 0.003
    assert read["penstock_log_append_seconds_bucket", "le=0.001,topic=orders"] == 1
    assert read["penstock_log_append_seconds_bucket", "le=0.0025,topic=orders"] == 2


def test_a_log_that_is_closed_leaves_what_its_appends_took() -> None:
    metrics = LogMetrics()
    stats = LogStats()
    readings = LogReadings(
        lambda: 4096, lambda: 2, lambda: 7, lambda: HistogramSnapshot(stats.append_buckets, stats.append_ns)
    )
    metrics.watch("orders", 3, readings)
    took_a_millisecond(stats)

    metrics.forget("orders", 3)
    metrics.forget("orders", 3)

    read = samples(metrics)
    assert ("penstock_log_size_bytes", "partition=3,topic=orders") not in read
    assert read["penstock_log_append_seconds_count", "topic=orders"] == 1


def test_the_log_counts_its_appends_in_our_buckets() -> None:
    assert APPEND_BOUNDS_NS == STORAGE_BOUNDS_NS


def test_the_event_log_reports_what_it_wrote_and_dropped() -> None:
    log = EventLog()
    metrics = EventMetrics(log)

    log.dropped.count += 2

    assert samples(metrics)["penstock_events_dropped_total", ""] == 2
    assert samples(metrics)["penstock_events_total", "level=error"] == 0
