"""Figures of one log in plain integers; a collector reads them when somebody asks."""

# Upper bounds in nanoseconds; the last bucket is open.
APPEND_BOUNDS_NS = (
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    50_000_000,
    250_000_000,
    1_000_000_000,
)


class LogStats:
    """Counters since the log was opened."""

    __slots__ = (
        "append_buckets",
        "append_ns",
        "appended_bytes",
        "appends",
        "checkpoints",
        "compactions",
        "indexes_rebuilt",
        "rolls",
        "truncations",
    )

    def __init__(self) -> None:
        self.appends = 0
        self.appended_bytes = 0
        # How long appends took: in all, and how many within which of the bounds.
        self.append_ns = 0
        self.append_buckets = [0] * (len(APPEND_BOUNDS_NS) + 1)
        self.rolls = 0
        self.checkpoints = 0
        self.compactions = 0
        self.truncations = 0
        self.indexes_rebuilt = 0
