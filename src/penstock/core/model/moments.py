"""Two kinds of moment that must not be mixed up."""

from typing import NewType

# Monotonic nanoseconds of one process: for deadlines and durations, never stored.
Instant = NewType("Instant", int)

# Wall-clock milliseconds since 1970, as Kafka records carry them: never for deadlines,
# because the wall clock jumps.
Timestamp = NewType("Timestamp", int)

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
