"""The class in which a component declares all its figures."""

from collections.abc import Sequence

from penstock.core.model import MICROSECOND, MILLISECOND, SECOND
from penstock.observability.figures import About, Counter, Gauge, Histogram

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


class Metrics:
    """A component's figures: a subclass declares them in its constructor, with `counter` and so on.

    The constructor works without arguments, which is how the reference page is written.
    """

    def __init__(self) -> None:
        self.families: list[Counter | Gauge | Histogram] = []

    def counter(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
        family = Counter(About(name, meaning, tuple(labels)))
        self.families.append(family)
        return family

    def gauge(
        self, name: str, meaning: str, labels: Sequence[str] = (), label_sets_max: int = 10_000
    ) -> Gauge:
        family = Gauge(About(name, meaning, tuple(labels), label_sets_max))
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
        family = Histogram(About(name, meaning, tuple(labels)), bounds_ns, SECOND)
        self.families.append(family)
        return family
