"""When reading a span does not go on: wait and try again, or say what is wrong.

Three kinds of trouble. A broker that is away or busy gets the whole of `timeout_ms`. A log that
seems to be gone or too short gets a few seconds, for that can be the view of a broker that has just
become leader. A refusal is final.
"""

import time

from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode
from penstock.pipeline.errors import DataLost, PipelineError
from penstock.pipeline.reading.spans import Span
from penstock.runtime.loop import MachineClock

SETTLE_MS = 5_000
_PAUSE_SECONDS_MIN = 0.05
_PAUSE_SECONDS_MAX = 2.0
_MISSING = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
_BUSY = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})


class Trouble:
    """Counts the time since a span last made progress."""

    def __init__(self, span: Span, timeout_ms: int, settle_ms: int = SETTLE_MS) -> None:
        self._span = span
        self._timeout_ms = timeout_ms
        self._settle_ms = min(settle_ms, timeout_ms)
        self._clock = MachineClock()
        self.passed()

    def passed(self) -> None:
        """The span made progress: the clock starts anew."""
        self._since = self._clock.now()
        self._short_since: int | None = None
        self._pause_seconds = _PAUSE_SECONDS_MIN

    def away(self, position: int, reason: str) -> None:
        """The broker cannot serve now: wait a little, or give up."""
        self._short_since = None
        waited_ms = (self._clock.now() - self._since) // MILLISECOND
        if waited_ms >= self._timeout_ms:
            raise PipelineError(
                f"{self._span}: no progress at offset {position} for {waited_ms / 1000:.0f} s: {reason}"
            )
        self._pause()

    def refused(self, position: int, code: int) -> None:
        """The broker answered with an error code."""
        known = code in ErrorCode._value2member_map_
        name = ErrorCode(code).name if known else f"error {code}"
        if code in _MISSING:
            self.short(position)
        elif code in _BUSY or (known and ErrorCode(code).retriable):
            self.away(position, name)
        else:
            raise PipelineError(f"{self._span}: reading at offset {position} was refused: {name}")

    def short(self, position: int) -> None:
        """The log is gone or ends before the span does: wait a little, or call the rest lost."""
        now = self._clock.now()
        if self._short_since is None:
            self._short_since = now
        if now - self._short_since >= self._settle_ms * MILLISECOND:
            raise self.lost(position, self._span.end)
        self._pause()

    def lost(self, start: int, end: int) -> DataLost:
        return DataLost(self._span.topic, self._span.partition, start, min(end, self._span.end))

    def _pause(self) -> None:
        time.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, _PAUSE_SECONDS_MAX)
