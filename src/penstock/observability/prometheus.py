"""Metrics in the text format that Prometheus scrapes."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.core.model import PenstockError
from penstock.observability.metrics import Counter, Gauge, Histogram, Metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

OVERFLOW_NAME = "penstock_metric_label_sets_dropped_total"
OVERFLOW_MEANING = "Label sets beyond a metric's limit, counted under `other` or left out."


def render(declared: Iterable[Metrics]) -> bytes:
    """Everything that the components declared, as one page of text."""
    # 80 ms of import that commands which never serve metrics do not pay.
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Declared(Collector):
        def collect(self) -> Iterator["Metric"]:
            yield from families(declared)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Declared())
    return generate_latest(registry)


def families(declared: Iterable[Metrics]) -> Iterator["Metric"]:
    """Each declared family with its present values, and how many label sets did not fit."""
    from prometheus_client.core import CounterMetricFamily

    overflow = CounterMetricFamily(OVERFLOW_NAME, OVERFLOW_MEANING, labels=("metric",))
    for metrics in declared:
        for family in metrics.families:
            yield _family(family)
            if family.overflowed:
                overflow.add_metric((family.about.name,), family.overflowed)
    yield overflow


def _family(family: Counter | Gauge | Histogram) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    about = family.about
    if isinstance(family, Counter):
        counter = CounterMetricFamily(about.name, about.meaning, labels=about.labels)
        for labels, tally in list(family.figures.items()):
            counter.add_metric(labels, tally.count)
        return counter
    if isinstance(family, Gauge):
        gauge = GaugeMetricFamily(about.name, about.meaning, labels=about.labels)
        for labels, reading in list(family.figures.items()):
            try:
                gauge.add_metric(labels, reading())
            except (PenstockError, OSError):
                # What it reads has just been closed or has failed: skip the sample, not the page.
                continue
        return gauge
    histogram = HistogramMetricFamily(about.name, about.meaning, labels=about.labels)
    bounds = [repr(bound / family.units_per_one) for bound in family.bounds] + ["+Inf"]
    for labels, distribution in list(family.figures.items()):
        spread = distribution.spread()
        buckets = list(zip(bounds, accumulate(spread.counts), strict=True))
        histogram.add_metric(labels, buckets, spread.total / family.units_per_one)
    return histogram
