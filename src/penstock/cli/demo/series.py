"""Metrics as a fleet of hosts would send them, made up but always the same."""

from collections.abc import Iterator

from penstock.client.load.fleet import SHAPES, series_of, value_at
from penstock.core.records import Record

HOSTS = 12
INTERVAL_MS = 1_000


def records(count: int, first_timestamp: int) -> Iterator[Record]:
    """`count` measurements in the order of their time, keyed by series."""
    every = [series_of(host, shape) for host in range(HOSTS) for shape in SHAPES]
    totals = dict.fromkeys((series.key for series in every), 0.0)
    for index in range(count):
        turn, place = divmod(index, len(every))
        series = every[place]
        timestamp = first_timestamp + turn * INTERVAL_MS
        # A hash stands in for chance: the same record every time, and nothing to seed.
        chance = ((index + 1) * 2_654_435_761 >> 7) % 1_000 / 500 - 1
        value = value_at(series.shape, series.host / HOSTS, timestamp, chance)
        if series.shape.counts_up:
            value = totals[series.key] = totals[series.key] + value
        digits = series.shape.digits
        content = (
            f"{series.before_value}{round(value, digits) if digits else int(value)}"
            f"{series.before_time}{timestamp}{series.after_time}"
        )
        yield Record(index, timestamp, series.key, content.encode(), ())
