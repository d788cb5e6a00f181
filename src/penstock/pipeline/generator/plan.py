"""How many records, how fast, and how much of it goes wrong."""

from dataclasses import dataclass

from penstock.pipeline.errors import PipelineError

# The first moment that is no valid time: 2100-01-01.
TIMESTAMP_END_MS = 4_102_444_800_000


class BadPlan(PipelineError):
    """A plan that cannot be carried out."""


@dataclass(frozen=True, slots=True)
class Plan:
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
                raise BadPlan(f"{name}: {share} is not between 0 and 1")
        if sum(shares.values()) > 1:
            raise BadPlan(f"late, duplicates and malformed are {sum(shares.values()):g} in all, more than 1")
        if self.series < 1 or self.interval_ms < 1:
            raise BadPlan("there must be one series and an interval of one millisecond at least")
        if self.late and self.late_intervals_max < 1:
            raise BadPlan(
                f"nothing can be late by less than {self.late_ms_max} ms"
                f" when a series sends every {self.interval_ms} ms: at least twice that is needed"
            )
        if not 0 <= self.start_ms < TIMESTAMP_END_MS - self._span_ms:
            raise BadPlan(f"a start at {self.start_ms} ms leaves the valid times")

    @property
    def late_intervals_max(self) -> int:
        """By how many whole intervals a record may be held back.

        One interval less than the time, for the stream has got up to the end of an interval.
        """
        return self.late_ms_max // self.interval_ms - 1

    @property
    def _span_ms(self) -> int:
        return ((self.count or 0) // self.series + 1) * self.interval_ms
