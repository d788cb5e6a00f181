from datetime import UTC, datetime

import pytest

from penstock.client import OffsetSpec, parse_position
from penstock.client.admin import EARLIEST, LATEST

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", OffsetSpec(moment=EARLIEST)),
        ("earliest", OffsetSpec(moment=EARLIEST)),
        ("end", OffsetSpec(moment=LATEST)),
        ("latest", OffsetSpec(moment=LATEST)),
        ("0", OffsetSpec(offset=0)),
        (" 42 ", OffsetSpec(offset=42)),
        ("250ms", OffsetSpec(moment=NOW_MS - 250)),
        ("90s", OffsetSpec(moment=NOW_MS - 90_000)),
        ("15m", OffsetSpec(moment=NOW_MS - 900_000)),
        ("2h", OffsetSpec(moment=NOW_MS - 7_200_000)),
        ("7d", OffsetSpec(moment=NOW_MS - 604_800_000)),
        ("999999999999d", OffsetSpec(moment=0)),
        ("2026-11-02T10:00:00.250Z", OffsetSpec(moment=1_793_613_600_250)),
        ("2026-11-02T10:00+02:00", OffsetSpec(moment=1_793_606_400_000)),
        ("1969-01-01T00:00Z", OffsetSpec(moment=0)),
    ],
)
def test_a_position_is_a_word_an_offset_an_age_or_a_time(text: str, position: OffsetSpec) -> None:
    assert parse_position(text, NOW_MS) == position


def test_a_time_without_a_zone_is_local() -> None:
    here = datetime(2026, 11, 2, 10, tzinfo=UTC).astimezone().replace(tzinfo=None)

    assert parse_position(here.isoformat(), NOW_MS) == parse_position("2026-11-02T10:00Z", NOW_MS)


@pytest.mark.parametrize("text", ["", "noon", "-1", "15 m", "1w", "2026-13-01"])
def test_what_is_none_of_these_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="is not beginning, end, an offset, an age such as 15m"):
        parse_position(text, NOW_MS)
