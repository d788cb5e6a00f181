"""Counters, gauges and histograms that count in plain integers, declared in one class per component.

A family has a name, a meaning and label names; `of("orders")` returns the one value for those
label values. Components call it once and keep the result: then counting is an integer addition
(0.06 µs, where a labelled counter of prometheus_client costs 1.3).

`LogMetrics` are those of partition logs. `storage` counts in plain integers and does not know who
reads them; the owner of a log connects the two with `watch`.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.core.model import MICROSECOND, MILLISECOND, SECOND
from penstock.core.values import dataclass

OTHER = "other"
LABEL_SETS_MAX = 1_000
LABEL_LENGTH_MAX = 256
Labels = tuple[str, ...]
Reading = Callable[[], float]
F = TypeVar("F")
# From a cached append to a disk that is in trouble: 10 µs to 10 s, counted in nanoseconds.
LATENCY_BOUNDS_NS = (
    *(
        10 * MICROSECOND,
        25 * MICROSECOND,
        50 * MICROSECOND,
        100 * MICROSECOND,
        250 * MICROSECOND,
        500 * MICROSECOND,
    ),
    *(
        1 * MILLISECOND,
        2_500 * MICROSECOND,
        5 * MILLISECOND,
        10 * MILLISECOND,
        25 * MILLISECOND,
        50 * MILLISECOND,
    ),
    *(100 * MILLISECOND, 250 * MILLISECOND, 500 * MILLISECOND, 1 * SECOND, 2_500 * MILLISECOND, 10 * SECOND),
)
# The buckets in which a log counts its appends; a test compares the two.
APPEND_BOUNDS_NS = (
    *(10 * MICROSECOND, 25 * MICROSECOND, 50 * MICROSECOND, 100 * MICROSECOND, 250 * MICROSECOND),
    *(500 * MICROSECOND, 1 * MILLISECOND, 2_500 * MICROSECOND, 5 * MILLISECOND, 10 * MILLISECOND),
    *(50 * MILLISECOND, 250 * MILLISECOND, 1 * SECOND),
)


def _labels(values: tuple[object, ...]) -> Labels:
    return tuple(str(value)[:LABEL_LENGTH_MAX] for value in values)


class CounterValue:
    """How often something happened since the start: `tally.count += 1` on the hot path."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class HistogramSnapshot(NamedTuple):
    """A distribution at one time: how many per bucket, and the sum of all values."""

    counts: Sequence[int]
    total: int


class HistogramValue:
    """How values spread over fixed buckets; values and bounds are integers of one unit.

    Values counted elsewhere, in buckets with the same bounds, can be included when it is read. Where
    a call would cost more than the counting, callers add to `counts` and `total` in place.
    """

    __slots__ = ("_others", "bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last one is everything larger
        self.total = 0
        self._others: dict[object, Callable[[], HistogramSnapshot]] = {}

    def observe(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_equal(self, value: int, count: int) -> None:
        """So many values that are the same."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def include(self, who: object, reading: Callable[[], HistogramSnapshot]) -> None:
        """Add what `who` counts, from now on."""
        self._others[who] = reading

    def settle(self, who: object) -> None:
        """Keep what `who` has counted, and read it no more: a histogram never goes back."""
        if (reading := self._others.pop(who, None)) is not None:
            self.counts, self.total = _sum([HistogramSnapshot(self.counts, self.total), reading()])

    def spread(self) -> HistogramSnapshot:
        """Everything up to now."""
        counts, total = _sum(
            [HistogramSnapshot(self.counts, self.total), *(read() for read in self._others.values())]
        )
        return HistogramSnapshot(counts, total)


def _sum(spreads: Sequence[HistogramSnapshot]) -> tuple[list[int], int]:
    counts = [sum(column) for column in zip(*(spread.counts for spread in spreads), strict=True)]
    return counts, sum(spread.total for spread in spreads)


@dataclass(frozen=True, slots=True)
class FamilyInfo:
    """What a family is called and means."""

    name: str
    meaning: str
    labels: Labels = ()
    label_sets_max: int = LABEL_SETS_MAX


class MetricFamily(Generic[F]):
    """The values of one name, one per combination of label values, up to a limit.

    Beyond the limit, new combinations share a value labelled `other`: a client that invents
    topic names must not fill the memory, nor the dashboard's.
    """

    def __init__(self, about: FamilyInfo, create: Callable[[], F]) -> None:
        self.about = about
        self.figures: dict[Labels, F] = {}
        self.overflowed = 0
        self._create = create

    def of(self, *values: object) -> F:
        """The value for these label values, made at the first call."""
        assert len(values) == len(self.about.labels), f"{self.about.name} has the labels {self.about.labels}"
        key = _labels(values)
        figure = self.figures.get(key)
        if figure is None:
            if self._is_full(key):
                self.overflowed += 1
                key = (OTHER,) * len(key)
            figure = self.figures.setdefault(key, self._create())
        return figure

    def forget(self, *values: object) -> None:
        """Drop the value of a topic, partition or group that is gone."""
        self.figures.pop(_labels(values), None)

    def _is_full(self, key: Labels) -> bool:
        return bool(key) and len(self.figures) >= self.about.label_sets_max


class Counter(MetricFamily[CounterValue]):
    """Things that happened; the name ends in `_total`."""

    def __init__(self, about: FamilyInfo) -> None:
        assert about.name.endswith("_total"), f"a counter's name ends in _total: {about.name}"
        super().__init__(about, CounterValue)

    def adopt(self, tally: CounterValue, *values: object) -> None:
        """Show a value that a component keeps already."""
        assert len(values) == len(self.about.labels), f"{self.about.name} has the labels {self.about.labels}"
        self.figures[_labels(values)] = tally


class Gauge:
    """Current values, read by a function at each scrape."""

    def __init__(self, about: FamilyInfo) -> None:
        self.about = about
        self.figures: dict[Labels, Reading] = {}
        self.overflowed = 0

    def read(self, reading: Reading, *values: object) -> None:
        """Call `reading` at each scrape. There is no `other` gauge: beyond the limit, gauges are left out."""
        assert len(values) == len(self.about.labels), f"{self.about.name} has the labels {self.about.labels}"
        key = _labels(values)
        if key not in self.figures and len(self.figures) >= self.about.label_sets_max:
            self.overflowed += 1
            return
        self.figures[key] = reading

    def forget(self, *values: object) -> None:
        self.figures.pop(_labels(values), None)


class Histogram(MetricFamily[HistogramValue]):
    """How values spread; counted in a small integer unit, shown divided by `units_per_one`."""

    def __init__(self, about: FamilyInfo, bounds: Sequence[int], units_per_one: int = 1) -> None:
        assert list(bounds) == sorted(set(bounds)), f"{about.name}: bounds must rise"
        super().__init__(about, lambda: HistogramValue(bounds))
        self.bounds = tuple(bounds)
        self.units_per_one = units_per_one


class Metrics:
    """A component's metrics: a subclass declares them in its constructor, with `counter` and so on.

    The constructor works without arguments, which is how the reference page is written.
    """

    def __init__(self) -> None:
        self.families: list[Counter | Gauge | Histogram] = []

    def counter(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
        family = Counter(FamilyInfo(name, meaning, tuple(labels)))
        self.families.append(family)
        return family

    def gauge(
        self, name: str, meaning: str, labels: Sequence[str] = (), label_sets_max: int = 10_000
    ) -> Gauge:
        family = Gauge(FamilyInfo(name, meaning, tuple(labels), label_sets_max))
        self.families.append(family)
        return family

    def seconds(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str] = (),
        bounds_ns: Sequence[int] = LATENCY_BOUNDS_NS,
    ) -> Histogram:
        """A histogram of durations, observed in nanoseconds and shown in seconds."""
        family = Histogram(FamilyInfo(name, meaning, tuple(labels)), bounds_ns, SECOND)
        self.families.append(family)
        return family


@dataclass(frozen=True, slots=True)
class LogReadings:
    """The functions that read a log's values."""

    size_bytes: Callable[[], int]
    segments: Callable[[], int]
    stable_lag: Callable[[], int]
    appends: Callable[[], HistogramSnapshot]


class LogMetrics(Metrics):
    """How large the logs are, and what appending to them takes."""

    def __init__(self) -> None:
        super().__init__()
        partition = ("topic", "partition")
        self.size_bytes = self.gauge(
            "penstock_log_size_bytes", "Bytes of a partition's segment files.", partition
        )
        self.segments = self.gauge("penstock_log_segments", "Segment files of a partition.", partition)
        self.stable_lag = self.gauge(
            "penstock_last_stable_offset_lag",
            "Offsets below a partition's high watermark that open transactions hold back.",
            partition,
        )
        self.append_seconds = self.seconds(
            "penstock_log_append_seconds",
            "Time to append batches to a log, without the sync.",
            ("topic",),
            APPEND_BOUNDS_NS,
        )

    def watch(self, topic: str, partition: int, readings: LogReadings) -> None:
        """Report a log from now on."""
        self.size_bytes.read(readings.size_bytes, topic, partition)
        self.segments.read(readings.segments, topic, partition)
        self.stable_lag.read(readings.stable_lag, topic, partition)
        self.append_seconds.of(topic).include((topic, partition), readings.appends)

    def forget(self, topic: str, partition: int) -> None:
        """Stop reporting a log that is about to be closed; what its appends took stays with its topic."""
        self.size_bytes.forget(topic, partition)
        self.segments.forget(topic, partition)
        self.stable_lag.forget(topic, partition)
        self.append_seconds.of(topic).settle((topic, partition))
