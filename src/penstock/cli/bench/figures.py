"""Rates and percentiles."""

from collections.abc import Sequence

MEGABYTE = 1_000_000
POINTS = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
Figures = dict[str, float]


def percentiles_us(values_ns: Sequence[int], prefix: str = "") -> Figures:
    """p50, p90, p99, p999 and the maximum, in microseconds."""
    if not values_ns:
        return {}
    ordered = sorted(values_ns)
    found = {
        f"{prefix}{name}_us": round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1_000, 1)
        for name, share in POINTS
    }
    return {**found, f"{prefix}max_us": round(ordered[-1] / 1_000, 1)}


def rates(records: int, value_bytes: int, elapsed_ns: int) -> Figures:
    """Records and megabytes a second."""
    seconds = max(1, elapsed_ns) / 1e9
    return {
        "messages_per_s": round(records / seconds),
        "mb_per_s": round(records * value_bytes / seconds / MEGABYTE, 1),
    }
