"""What was made, kept apart from the broker and the pipeline that are judged by it."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

_MASK = (1 << 128) - 1
_Hash = hashlib.blake2b


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


class Account:
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
