"""How a partition's log behaves; every figure has the default of the settings reference."""

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1000
# Positions and offset deltas are 32 bits in the index; Kafka's limit is a bit lower still.
SEGMENT_BYTES_MAX = 2**31 - 1
# Eight rows of the offset index.
INDEX_BYTES_MIN = 64


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Sizes and times of one log. A negative retention keeps everything.

    Segments are closed up to `segment_jitter_ms` before they are `segment_ms` old. Files of
    deleted records stay for `file_delete_delay_ms` where somebody else removes them.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 << 20
    time_index_interval_ms: int = 1000
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    message_bytes_max: int = 1 << 20
    checkpoint_bytes: int = 64 << 20
    checkpoint_ms: int = 10_000
    producer_expiry_ms: int = DAY_MS
    file_delete_delay_ms: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment_bytes must lie between 1 and {SEGMENT_BYTES_MAX}")
        if self.index_interval_bytes < 1:
            raise ValueError(f"index_interval_bytes must be at least 1, not {self.index_interval_bytes}")
        if self.index_bytes_max < INDEX_BYTES_MIN:
            raise ValueError(
                f"index_bytes_max must be at least {INDEX_BYTES_MIN}, not {self.index_bytes_max}"
            )
