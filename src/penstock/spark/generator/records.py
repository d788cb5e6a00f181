"""The records themselves, in the order in which they are sent, and the account of them."""

import hashlib
import itertools
import random  # noqa: TID251 - seeded by the plan: the same plan makes the same records
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.client.load import SHAPES, HostSeries, series_of, value_at
from penstock.spark.errors import PipelineError

# The first moment that is no valid time: 2100-01-01.
TIMESTAMP_END_MS = 4_102_444_800_000
_MASK = (1 << 128) - 1
_Hash = hashlib.blake2b
RECENT_POINTS = 1_000
CLOSING_SERIES = "penstock_closing"
Pair = tuple[bytes, bytes | None]


class InvalidPlan(PipelineError):
    """A plan that cannot be carried out."""


@dataclass(frozen=True, slots=True)
class GeneratorPlan:
    """What to make. Shares are of all records; `count` counts everything but the closing record."""

    count: int | None
    start_ms: int
    series: int = 72
    interval_ms: int = 1_000
    late: float = 0.0
    duplicates: float = 0.0
    malformed: float = 0.0
    late_ms_max: int = 30_000
    seed: int = 0

    def __post_init__(self) -> None:
        shares = {"late": self.late, "duplicates": self.duplicates, "malformed": self.malformed}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise InvalidPlan(f"{name}: {share} is not between 0 and 1")
        if sum(shares.values()) > 1:
            raise InvalidPlan(
                f"late, duplicates and malformed are {sum(shares.values()):g} in all, more than 1"
            )
        if self.series < 1 or self.interval_ms < 1:
            raise InvalidPlan("there must be one series and an interval of one millisecond at least")
        if self.late and self.late_intervals_max < 1:
            raise InvalidPlan(
                f"nothing can be late by less than {self.late_ms_max} ms"
                f" when a series sends every {self.interval_ms} ms: at least twice that is needed"
            )
        if not 0 <= self.start_ms < TIMESTAMP_END_MS - self._span_ms:
            raise InvalidPlan(f"a start at {self.start_ms} ms leaves the valid times")

    @property
    def late_intervals_max(self) -> int:
        """By how many whole intervals a record may be held back.

        One interval less than the time, for the stream has got up to the end of an interval.
        """
        return self.late_ms_max // self.interval_ms - 1

    @property
    def _span_ms(self) -> int:
        return ((self.count or 0) // self.series + 1) * self.interval_ms


def malformed_values() -> Iterator[Callable[[HostSeries, int], bytes | None]]:
    """One maker after the other, so that every kind comes as often as any other."""
    return itertools.cycle(MAKERS.values())


def _whole(series: HostSeries, value: str, timestamp: str) -> bytes:
    return f"{series.before_value}{value}{series.before_time}{timestamp}{series.after_time}".encode()


def _without(series: HostSeries, timestamp: int, old: bytes, new: bytes) -> bytes:
    whole = _whole(series, "1", str(timestamp))
    assert old in whole
    return whole.replace(old, new)


def _labels(series: HostSeries) -> bytes:
    return series.before_time.encode().partition(b'"labels":')[2].rpartition(b',"timestamp"')[0]


MAKERS: dict[str, Callable[[HostSeries, int], bytes | None]] = {
    "not JSON": lambda s, t: b"%s,%d,17.5" % (s.shape.name.encode(), t),
    "cut off": lambda s, t: _whole(s, "17.5", str(t))[:-9],
    "no name": lambda s, t: _without(s, t, b'"name":"%s",' % s.shape.name.encode(), b""),
    "empty name": lambda s, t: _without(s, t, b'"name":"%s"' % s.shape.name.encode(), b'"name":""'),
    "value is text": lambda s, t: _whole(s, '"NaN"', str(t)),
    "value is no number": lambda s, t: _whole(s, "NaN", str(t)),
    "value is null": lambda s, t: _whole(s, "null", str(t)),
    "time before 1970": lambda s, t: _whole(s, "17.5", str(-t)),
    "time after 2099": lambda s, t: _whole(s, "17.5", str(TIMESTAMP_END_MS + t)),
    "time is text": lambda s, t: _whole(s, "17.5", f'"{t} ms"'),
    "labels are a list": lambda s, t: _without(s, t, _labels(s), b"[1,2]"),
    "labels are text": lambda s, t: _without(s, t, _labels(s), b'"host=1"'),
    "no client": lambda s, t: _without(s, t, b',"client":"%s"' % s.client.encode(), b""),
    "not UTF-8": lambda s, t: _without(s, t, s.shape.name.encode(), b"cpu\xff\xfe"),
    "empty": lambda _, __: b"",
    "null": lambda _, __: None,
}


def point_hash(name: str, value: float, labels: Mapping[str, str], timestamp_ms: int, client: str) -> int:
    """One number for a point; whole numbers and floats of the same value are the same."""
    return _hash(series_text(name, labels, client), value, timestamp_ms)


def series_text(name: str, labels: Mapping[str, str], client: str) -> str:
    """A series as text that no other series has."""
    return repr((name, sorted(labels.items()), client))


def _hash(series: str, value: float, timestamp_ms: int) -> int:
    content = f"{series} {timestamp_ms} {float(value)!r}".encode()
    return int.from_bytes(_Hash(content, digest_size=16).digest(), "big")


def content_hash(hashes: Iterable[int]) -> str:
    """One text for a collection, whatever its order; a member that is there twice counts twice."""
    return f"{sum(hashes) & _MASK:032x}"


def bytes_hash(value: bytes | None) -> int:
    """One number for the value of a malformed record; null is not the same as empty."""
    content = b"null" if value is None else b"bytes" + value
    return int.from_bytes(_Hash(content, digest_size=16).digest(), "big")


class GeneratorAccount:
    """Counts and hashes; every record that was made is in exactly one of points, duplicates, malformed.

    `late` are the points that were held back.
    """

    def __init__(self) -> None:
        self.points = self.late = self.duplicates = self.malformed = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.closing_ms: int | None = None
        self._points_sum = self._malformed_sum = 0

    @property
    def records(self) -> int:
        """Everything that was made, the closing record included."""
        return self.points + self.duplicates + self.malformed

    def note_point(self, series: str, value: float, timestamp_ms: int) -> None:
        self.points += 1
        self._points_sum += _hash(series, value, timestamp_ms)

    def note_times(self, first_ms: int, last_ms: int) -> None:
        """The times of points, which come in order, once for many of them."""
        self.first_ms = first_ms if self.first_ms is None else self.first_ms
        self.last_ms = last_ms

    def note_malformed(self, value: bytes | None) -> None:
        self.malformed += 1
        self._malformed_sum += bytes_hash(value)

    @property
    def points_hash(self) -> str:
        return f"{self._points_sum & _MASK:032x}"

    @property
    def malformed_hash(self) -> str:
        return f"{self._malformed_sum & _MASK:032x}"

    def summary(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "records": self.records,
            "points": self.points,
            "points_hash": self.points_hash,
            "late": self.late,
            "duplicates": self.duplicates,
            "malformed": self.malformed,
            "malformed_hash": self.malformed_hash,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "closing_ms": self.closing_ms,
        }


class GeneratedPoint(NamedTuple):
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

    def __init__(self, plan: GeneratorPlan, on_row: Callable[[GeneratedPoint], None] | None = None) -> None:
        self.account = GeneratorAccount()
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
            self._on_row(GeneratedPoint(series, value, timestamp, content))
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
