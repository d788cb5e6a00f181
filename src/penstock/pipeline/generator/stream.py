"""The records themselves, in the order in which they are sent."""

import random  # noqa: TID251 - seeded by the plan: the same plan makes the same records
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.client.load import SHAPES, HostSeries, series_of, value_at
from penstock.pipeline.generator.account import Account, series_text
from penstock.pipeline.generator.malformed import malformed_values
from penstock.pipeline.generator.plan import Plan

RECENT_POINTS = 1_000
CLOSING_SERIES = "penstock_closing"
Pair = tuple[bytes, bytes | None]


class Row(NamedTuple):
    """A valid point that was made, with its record's value."""

    series: HostSeries
    value: float
    timestamp_ms: int
    content: bytes


class MetricStream:
    """One plan carried out: intervals of records, and the account of them.

    `on_row` sees every valid point once. Records that are held back are given out in a later
    interval; `rest` gives out those that are still held when nothing more is made.
    """

    def __init__(self, plan: Plan, on_row: Callable[[Row], None] | None = None) -> None:
        self.account = Account()
        self._plan = plan
        self._on_row = on_row
        hosts = -(-plan.series // len(SHAPES))
        every = [series_of(host, shape) for host in range(hosts) for shape in SHAPES][: plan.series]
        self._fleet = [
            (one, series_text(one.shape.name, one.labels, one.client), one.host / hosts) for one in every
        ]
        self._repeats = plan.duplicates > 0
        self._totals = [0] * plan.series
        self._chance = random.Random(plan.seed).random
        self._malformed = malformed_values()
        self._recent: deque[tuple[int, Pair]] = deque(maxlen=RECENT_POINTS)
        # Held records by how many intervals they still wait.
        self._held: deque[list[Pair]] = deque([[] for _ in range(max(1, plan.late_intervals_max + 1))])
        self._interval = 0

    @property
    def timestamp_ms(self) -> int:
        """Where the stream is in time: everything made so far is before it."""
        return self._plan.start_ms + self._interval * self._plan.interval_ms

    def intervals(self) -> Iterator[list[Pair]]:
        """The records of one interval after the other: keys and values; without end if `count` is None."""
        left = self._plan.count
        while left is None or left > 0:
            places = len(self._fleet) if left is None else min(left, len(self._fleet))
            yield self._next_interval(places)
            left = None if left is None else left - places
        yield self.rest()

    def rest(self) -> list[Pair]:
        """What is still held back, which ends the stream."""
        pairs = [pair for held in self._held for pair in held]
        for held in self._held:
            held.clear()
        return pairs

    def closing(self, after_ms: int) -> Pair:
        """A valid record, so far ahead in time that every window of the others has ended."""
        series = series_of(0, SHAPES[0]._replace(name=CLOSING_SERIES))
        self.account.closing_ms = after_ms
        return self._record(series, series_text(CLOSING_SERIES, series.labels, series.client), 0, after_ms)

    def _next_interval(self, places: int) -> list[Pair]:
        plan, chance = self._plan, self._chance
        pairs = self._held.popleft()
        self._held.append([])
        malformed, repeated = plan.malformed, plan.malformed + plan.duplicates
        late = repeated + plan.late
        base_ms, step = self.timestamp_ms, plan.interval_ms / len(self._fleet)
        for place in range(places):
            drawn = chance()
            timestamp = base_ms + int(place * step)
            if drawn >= late:
                pairs.append(self._point(place, timestamp))
            elif drawn < malformed:
                pairs.append(self._malformed_record(place, timestamp))
            elif drawn >= repeated:
                self._hold(self._point(place, timestamp))
            else:
                pairs.append(self._repetition(timestamp) or self._point(place, timestamp))
        self._interval += 1
        self.account.note_times(base_ms, base_ms + int((places - 1) * step))
        return pairs

    def _point(self, place: int, timestamp: int) -> Pair:
        series, text, phase = self._fleet[place]
        shape = series.shape
        value = value_at(shape, phase, timestamp, 2 * self._chance() - 1)
        if shape.counts_up:
            value = self._totals[place] = self._totals[place] + int(value)
        else:
            value = round(value, shape.digits) if shape.digits else int(value)
        pair = self._record(series, text, value, timestamp)
        if self._repeats:
            self._recent.append((timestamp, pair))
        return pair

    def _record(self, series: HostSeries, text: str, value: float, timestamp: int) -> Pair:
        content = f"{series.before_value}{value}{series.before_time}{timestamp}{series.after_time}".encode()
        self.account.note_point(text, value, timestamp)
        if self._on_row is not None:
            self._on_row(Row(series, value, timestamp, content))
        return (series.key, content)

    def _hold(self, pair: Pair) -> None:
        self.account.late += 1
        # The list for the next interval is the first; the last one stays empty until then.
        self._held[int(self._chance() * (len(self._held) - 1))].append(pair)

    def _repetition(self, timestamp: int) -> Pair | None:
        """A point of before; None at the start, and where it would come too late."""
        if not self._recent:
            return None
        before, pair = self._recent[int(self._chance() * len(self._recent))]
        if timestamp - before > self._plan.late_ms_max:
            before, pair = self._recent[-1]
        if timestamp - before > self._plan.late_ms_max:
            return None
        self.account.duplicates += 1
        return pair

    def _malformed_record(self, place: int, timestamp: int) -> Pair:
        series = self._fleet[place][0]
        value = next(self._malformed)(series, timestamp)
        self.account.note_malformed(value)
        return (series.key, value)
