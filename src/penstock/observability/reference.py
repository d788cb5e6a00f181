"""The reference page of the metrics, written from their declarations."""

from collections.abc import Iterable, Iterator

from penstock.observability.metrics import Counter, Gauge, Histogram, Metrics
from penstock.observability.prometheus import OVERFLOW_MEANING, OVERFLOW_NAME

_INTRODUCTION = """\
# Metrics

In Prometheus' text format. Times are in seconds, sizes in bytes. Label sets are bounded: beyond a
metric's limit, new ones are counted under the label value `other` (gauges are left out), and
`penstock_metric_label_sets_dropped_total` says how often.

| name | kind | labels | meaning |
|---|---|---|---|"""


def reference(declared: Iterable[Metrics]) -> Iterator[str]:
    """The lines of docs/reference/metrics.md."""
    yield from _INTRODUCTION.splitlines()
    rows = {OVERFLOW_NAME: _row(OVERFLOW_NAME, "counter", ("metric",), OVERFLOW_MEANING)}
    for metrics in declared:
        for family in metrics.families:
            about = family.about
            assert about.name not in rows, f"two components declare {about.name}"
            rows[about.name] = _row(about.name, _kind(family), about.labels, about.meaning)
    for name in sorted(rows):
        yield rows[name]


def _kind(family: Counter | Gauge | Histogram) -> str:
    return type(family).__name__.lower()


def _row(name: str, kind: str, labels: tuple[str, ...], meaning: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(labels)} | {meaning} |"
