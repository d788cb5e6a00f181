"""Metrics as a fleet of hosts would send them, made up but always the same."""

import json
import math
from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.records import Record

HOSTS = 12
REGIONS = ("eu-west", "us-east", "ap-south")
SERVICES = ("checkout", "search", "accounts", "mail")
INTERVAL_MS = 1_000


class Shape(NamedTuple):
    """How one kind of metric moves: around a level, with the time of day, and with noise."""

    name: str
    level: float
    swing: float
    noise: float
    digits: int
    counts_up: bool = False


SHAPES = (
    Shape("cpu_usage_percent", 42, 25, 8, 1),
    Shape("memory_used_bytes", 6.2e9, 4e8, 5e7, 0),
    Shape("http_requests_total", 120, 80, 20, 0, counts_up=True),
    Shape("http_latency_ms", 18, 9, 6, 2),
    Shape("queue_depth", 40, 35, 15, 0),
    Shape("disk_io_bytes_per_second", 3.1e7, 2e7, 6e6, 0),
)
DAY_MS = 86_400_000


class Series(NamedTuple):
    """One metric of one host, with the JSON around its value and its time."""

    host: int
    shape: Shape
    key: bytes
    before_value: str
    before_time: str
    after_time: str


def records(count: int, first_timestamp: int) -> Iterator[Record]:
    """`count` measurements in the order of their time, keyed by series."""
    every = [_series(host, shape) for host in range(HOSTS) for shape in SHAPES]
    totals = dict.fromkeys((series.key for series in every), 0.0)
    for index in range(count):
        turn, place = divmod(index, len(every))
        series = every[place]
        timestamp = first_timestamp + turn * INTERVAL_MS
        value = _value(series.shape, series.host, timestamp, index)
        if series.shape.counts_up:
            value = totals[series.key] = totals[series.key] + value
        digits = series.shape.digits
        content = (
            f"{series.before_value}{round(value, digits) if digits else int(value)}"
            f"{series.before_time}{timestamp}{series.after_time}"
        )
        yield Record(index, timestamp, series.key, content.encode(), ())


def _series(host: int, shape: Shape) -> Series:
    measurement = {
        "name": shape.name,
        "value": "@",
        "labels": {
            "host": f"host-{host:02d}",
            "region": REGIONS[host % len(REGIONS)],
            "service": SERVICES[host % len(SERVICES)],
        },
        "timestamp": "@",
        "client": f"agent-{host:02d}",
    }
    parts = json.dumps(measurement, separators=(",", ":")).split('"@"')
    return Series(host, shape, f"{shape.name}@host-{host:02d}".encode(), *parts)


def _value(shape: Shape, host: int, timestamp: int, index: int) -> float:
    turn = 2 * math.pi * (timestamp % DAY_MS / DAY_MS + host / HOSTS)
    # A hash stands in for chance: the same record every time, and nothing to seed.
    chance = ((index + 1) * 2_654_435_761 >> 7) % 1_000 / 500 - 1
    return max(0.0, shape.level + shape.swing * math.sin(turn) + shape.noise * chance)
