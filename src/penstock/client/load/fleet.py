"""What a fleet of hosts measures: the shapes of its metrics, and the JSON around a value and its time."""

import json
import math
from typing import NamedTuple

REGIONS = ("eu-west", "us-east", "ap-south")
SERVICES = ("checkout", "search", "accounts", "mail")
DAY_MS = 86_400_000


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


class Series(NamedTuple):
    """One metric of one host, with the JSON around its value and its time."""

    host: int
    shape: Shape
    key: bytes
    labels: dict[str, str]
    client: str
    before_value: str
    before_time: str
    after_time: str


def series_of(host: int, shape: Shape) -> Series:
    labels = {
        "host": f"host-{host:02d}",
        "region": REGIONS[host % len(REGIONS)],
        "service": SERVICES[host % len(SERVICES)],
    }
    client = f"agent-{host:02d}"
    measurement = {"name": shape.name, "value": "@", "labels": labels, "timestamp": "@", "client": client}
    parts = json.dumps(measurement, separators=(",", ":")).split('"@"')
    return Series(host, shape, f"{shape.name}@{labels['host']}".encode(), labels, client, *parts)


def value_at(shape: Shape, phase: float, timestamp: int, chance: float) -> float:
    """The value at a time: `phase` shifts a host's day, `chance` is between -1 and 1."""
    turn = 2 * math.pi * (timestamp % DAY_MS / DAY_MS + phase)
    return max(0.0, shape.level + shape.swing * math.sin(turn) + shape.noise * chance)
