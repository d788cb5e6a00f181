"""Where to start reading: `beginning`, `end`, an offset, or a time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.client.offsets import EARLIEST, LATEST, offsets_at, watermarks

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGE = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_WORDS = {"beginning": EARLIEST, "earliest": EARLIEST, "end": LATEST, "latest": LATEST}
ALLOWED = "beginning, end, an offset, an age such as 15m, or a time such as 2026-11-02T10:00"


@dataclass(frozen=True, slots=True)
class Position:
    """An offset that is the same in every partition, or a moment (EARLIEST, LATEST, ms) that is not."""

    offset: int | None = None
    moment: int | None = None

    def resolve(self, admin: Any, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """The offset in each partition, never outside what the partition holds."""
        marks = watermarks(admin, topic, partitions)
        if self.offset is not None:
            return {one: min(max(self.offset, mark.start), mark.end) for one, mark in marks.items()}
        assert self.moment is not None
        if self.moment in (EARLIEST, LATEST):
            return {one: mark.start if self.moment == EARLIEST else mark.end for one, mark in marks.items()}
        found = offsets_at(admin, [(topic, partition) for partition in marks], self.moment)
        return {
            one: found[topic, one] if found.get((topic, one), -1) >= 0 else mark.end
            for one, mark in marks.items()
        }


BEGINNING = Position(moment=EARLIEST)


def parse_position(text: str, now_ms: int) -> Position:
    """Read what `--from` and `--to` take; ValueError says what is allowed.

    A time without a zone is local, as whoever types it means it.
    """
    word = text.strip()
    if word in _WORDS:
        return Position(moment=_WORDS[word])
    if word.isascii() and word.isdigit() and len(word) <= 18:
        return Position(offset=int(word))
    if age := _AGE.fullmatch(word):
        return Position(moment=max(0, now_ms - int(age[1]) * _UNITS_MS[age[2]]))
    try:
        moment = datetime.fromisoformat(word).astimezone()
        return Position(moment=max(0, int(moment.timestamp() * 1_000)))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not {ALLOWED}") from None
