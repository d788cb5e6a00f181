"""Metrics in the text format that Prometheus scrapes.

A node with ten thousand partitions has as many values of a dozen metrics, which takes half a second to
render: the page is made in steps, of a few label sets each.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.model import PenstockError
from penstock.observability.metrics import Counter, Gauge, Histogram, Labels, Metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

# What it means, and what type it has.
HEADER_LINES = 2
OVERFLOW_NAME = "penstock_metric_label_sets_dropped_total"
OVERFLOW_MEANING = "Label sets beyond a metric's limit, counted under `other` or left out."


# In one step; a histogram has some twenty for each set of labels.
SAMPLES_PER_STEP = 32


def render(declared: Iterable[Metrics]) -> bytes:
    """Everything that the components declared, as one page of text."""
    steps = render_in_steps(declared)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            page: bytes = end.value
            return page


def render_in_steps(declared: Iterable[Metrics]) -> Generator[None, None, bytes]:
    """The same, in steps."""
    # 80 ms of import that commands which never serve metrics do not pay.
    from prometheus_client import generate_latest
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def __init__(self, metric: "Metric") -> None:
            self._metric = metric

        def collect(self) -> Iterator["Metric"]:
            yield self._metric

    page = bytearray()
    for part in families(declared):
        text = generate_latest(Collected(part.metric))
        # Only the first part of a family says what it is.
        page += text if part.is_first else text.split(b"\n", HEADER_LINES)[HEADER_LINES]
        yield
    return bytes(page)


class FamilyPart(NamedTuple):
    """A family, or some of the values of a large one."""

    metric: "Metric"
    is_first: bool


def families(declared: Iterable[Metrics]) -> Iterator[FamilyPart]:
    """Each declared family with its present values, bit by bit, and how many label sets did not fit."""
    from prometheus_client.core import CounterMetricFamily

    overflow = CounterMetricFamily(OVERFLOW_NAME, OVERFLOW_MEANING, labels=("metric",))
    for metrics in declared:
        for family in metrics.families:
            yield from _parts(family)
            if family.overflowed:
                overflow.add_metric((family.about.name,), family.overflowed)
    yield FamilyPart(overflow, is_first=True)


def _parts(family: Counter | Gauge | Histogram) -> Iterator[FamilyPart]:
    samples_each = len(family.bounds) + 3 if isinstance(family, Histogram) else 1
    count = max(1, SAMPLES_PER_STEP // samples_each)
    present = list(family.figures)
    yield FamilyPart(_part(family, present[:count]), is_first=True)
    for start in range(count, len(present), count):
        yield FamilyPart(_part(family, present[start : start + count]), is_first=False)


def _part(family: Counter | Gauge | Histogram, wanted: Iterable[Labels]) -> "Metric":
    """The values for these labels, as far as they are still there."""
    from prometheus_client.core import CounterMetricFamily

    if isinstance(family, Gauge):
        return _gauge(family, wanted)
    if isinstance(family, Histogram):
        return _histogram(family, wanted)
    about = family.about
    counter = CounterMetricFamily(about.name, about.meaning, labels=about.labels)
    for labels in wanted:
        if (tally := family.figures.get(labels)) is not None:
            counter.add_metric(labels, tally.count)
    return counter


def _gauge(family: Gauge, wanted: Iterable[Labels]) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    about = family.about
    gauge = GaugeMetricFamily(about.name, about.meaning, labels=about.labels)
    for labels in wanted:
        try:
            if (reading := family.figures.get(labels)) is not None:
                gauge.add_metric(labels, reading())
        except (PenstockError, OSError):
            # What it reads has just been closed or has failed: skip the sample, not the page.
            continue
    return gauge


def _histogram(family: Histogram, wanted: Iterable[Labels]) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    about = family.about
    histogram = HistogramMetricFamily(about.name, about.meaning, labels=about.labels)
    bounds = [repr(bound / family.units_per_one) for bound in family.bounds] + ["+Inf"]
    for labels in wanted:
        if (distribution := family.figures.get(labels)) is not None:
            spread = distribution.spread()
            buckets = list(zip(bounds, accumulate(spread.counts), strict=True))
            histogram.add_metric(labels, buckets, spread.total / family.units_per_one)
    return histogram
