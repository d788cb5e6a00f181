"""What goes in and out of a log."""

from collections.abc import Generator
from typing import NamedTuple, Protocol

from penstock.core.model import CorruptionError, Offset, PenstockError, StorageError, Timestamp, TopicId
from penstock.core.values import dataclass
from penstock.storage.disk import Buffer, File
from penstock.storage.sealing import KeyTable

DAY_MS = 24 * 60 * 60 * 1000
# Positions and offset deltas are 32 bits in the index; Kafka's limit is a bit lower still.
SEGMENT_BYTES_MAX = 2**31 - 1
# Eight rows of the offset index.
INDEX_BYTES_MIN = 64
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


class AppendedRange(NamedTuple):
    """Where batches ended up. They are in the page cache, not yet on the device."""

    first_offset: Offset
    last_offset: Offset
    size_bytes: int
    rolled: bool
    log_start: Offset


class ServableFile(File, Protocol):
    """A file that knows which of its bytes may be sent as they are."""

    def is_servable(self, position: int, length: int) -> bool: ...

    def is_verified(self, position: int, length: int) -> bool: ...

    def unverify(self, position: int, length: int) -> None: ...


class FileRange:
    """Bytes of a segment, ready for sendfile. The file stays readable when the segment is deleted.

    An encoder takes it for records of this length, and a connection for something to be sent.
    """

    __slots__ = ("file", "length", "position")

    # Whether it has to be opened before it is sent.
    is_sealed = False

    def __init__(self, file: ServableFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        """The descriptor to send from, asked for anew before every use."""
        return self.file.fileno()

    def to_bytes(self) -> bytes:
        return self.file.pread(self.position, self.length)

    # The name under which a connection that cannot use sendfile asks for the bytes.
    read = to_bytes

    def is_warm(self) -> bool:
        """Whether sending it would not wait for the device."""
        return self.file.is_warm(self.position, self.length)

    def is_servable(self) -> bool:
        """Whether it is warm, and was written or verified since the node started."""
        return self.file.is_servable(self.position, self.length)


# Opening a batch takes as long as decrypting so many bytes; all of a step takes about a millisecond.
OPENING_BYTES = 4 << 10
OPENING_STEP_BYTES = 1 << 20


class SealedRange(FileRange):
    """Bytes of a segment that may be sealed: they are sent from memory, as they were before.

    The length is that on disk: there are a few bytes less to be sent. Reading raises BrokenSeal.
    """

    __slots__ = ("table",)

    is_sealed = True

    def __init__(self, file: ServableFile, position: int, length: int, table: KeyTable) -> None:
        super().__init__(file, position, length)
        self.table = table

    def fileno(self) -> int:
        raise AssertionError("what is sealed is not sent as it is")

    def to_bytes(self) -> bytes:
        return self.table.unseal(self.file.pread(self.position, self.length))

    read = to_bytes

    def open_in_steps(self) -> Generator[None, None, "OpenedBatches"]:
        """The batches as they were, a millisecond of work at a time; raises as reading does."""
        content, plain, left = self.file.pread(self.position, self.length), list[Buffer](), OPENING_STEP_BYTES
        for batch in self.table.unseal_each(content):
            plain.append(batch)
            left -= OPENING_BYTES + len(batch)
            if left <= 0:
                yield
                left = OPENING_STEP_BYTES
        return OpenedBatches(b"".join(plain))


class OpenedBatches(bytes):
    """Batches in memory: what a reader is sent in place of a range that was sealed, or is very short."""

    __slots__ = ()

    is_sealed = False

    @property
    def length(self) -> int:
        return len(self)

    def to_bytes(self) -> bytes:
        return self


class ReadResult(NamedTuple):
    """Whole batches that stand back to back, the first one containing the offset asked for."""

    ranges: tuple[FileRange, ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.length for part in self.ranges)

    def to_bytes(self) -> bytes:
        return b"".join(part.to_bytes() for part in self.ranges)


EMPTY_READ = ReadResult(())


class TimestampOffset(NamedTuple):
    """The first record at or after some time."""

    offset: Offset
    timestamp: Timestamp


class BatchToSearch(NamedTuple):
    """A batch that may have the first record at or after some time, and takes long to look through."""

    content: bytes
    # Where to go on if it has none.
    end: Offset


class CorruptRange(NamedTuple):
    """A range of offsets that was in the log and cannot be read any more.

    In the segment's file it reaches from `position` to `stop`.
    """

    segment: Offset
    start: Offset
    end: Offset
    reason: str
    position: int = 0
    stop: int = 0


class LostTail(NamedTuple):
    """Offsets at the end of a log that were durable once, and are not there any more."""

    start: Offset
    end: Offset
    reason: str


class RestoredTail(NamedTuple):
    """Offsets at the end of a log that its own files had lost, and the node's journal had."""

    start: Offset
    end: Offset


class KeptTail(NamedTuple):
    """Batches that were copied to the quarantine before they are truncated.

    `path` is the first of the files, if the disk had room for one.
    """

    path: str | None
    kept_bytes: int
    size_bytes: int


class SegmentSummary(NamedTuple):
    """One segment, for listings and metrics."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Sizes and times of one log. A negative retention keeps everything.

    Segments are closed up to `segment_jitter_ms` before they are `segment_ms` old. Files of
    deleted records stay for `file_delete_delay_ms` if the log has a file remover. Offsets may be
    missing in the segments of a topic that is compacted (`may_have_gaps`), and nowhere else. Indexes of
    segments above `rebuild_bytes_max` are not rebuilt where they are needed: that raises SuspectSegment.
    Batches are sealed if the log `is_encrypted`, and has a vault.
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
    may_have_gaps: bool = False
    rebuild_bytes_max: int = 2**63 - 1
    is_encrypted: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment_bytes must lie between 1 and {SEGMENT_BYTES_MAX}")
        if self.index_interval_bytes < 1:
            raise ValueError(f"index_interval_bytes must be at least 1, not {self.index_interval_bytes}")
        if self.index_bytes_max < INDEX_BYTES_MIN:
            raise ValueError(
                f"index_bytes_max must be at least {INDEX_BYTES_MIN}, not {self.index_bytes_max}"
            )


class OffsetOutOfRange(PenstockError):
    """The offset lies outside of the log; says what the log holds."""

    def __init__(self, offset: Offset, start: Offset, end: Offset) -> None:
        super().__init__(f"offset {offset} is not within {start}..{end}")
        self.offset = offset
        self.start = start
        self.end = end


class BatchTooLarge(PenstockError):
    """One batch is larger than the topic allows."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"a batch of {size_bytes} bytes is larger than the {limit_bytes} allowed")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class OffsetsNotIncreasing(PenstockError):
    """A follower was handed batches that do not lie behind its log end, one after another."""


class LogStopped(StorageError):
    """After an earlier failure it is unknown what is on disk: this log takes no more writes."""

    def __init__(self, directory: str, cause: BaseException) -> None:
        super().__init__(f"the log {directory} has stopped: {cause}")
        self.cause = cause


class LogAbandoned(StorageError):
    """The log was closed because it is going to be removed."""


class IncompleteLog(StorageError):
    """The directory was never finished, so nothing was ever appended: create it anew."""


class WrongTopic(StorageError):
    """The directory belongs to another topic, most likely a deleted one of the same name."""

    def __init__(self, directory: str, expected: TopicId, found: TopicId) -> None:
        super().__init__(f"{directory} belongs to topic {found}, not {expected}")
        self.expected = expected
        self.found = found


class CorruptFile(CorruptionError):
    """A file beside the log is damaged. Most of them can be rebuilt."""


class DamagedRange(CorruptionError):
    """A read touches offsets where the log is damaged."""

    def __init__(self, offset: Offset, start: Offset, end: Offset, reason: str) -> None:
        super().__init__(f"offset {offset} lies in the damaged range {start}..{end}: {reason}")
        self.offset = offset
        self.start = start
        self.end = end
        self.reason = reason


class SuspectSegment(CorruptionError):
    """A read met something in a segment that makes no sense: it has to be verified."""

    def __init__(self, segment: Offset, reason: str) -> None:
        super().__init__(f"segment {segment} has to be verified: {reason}")
        self.segment = segment


class LogStats:
    """Counters since the log was opened."""

    __slots__ = (
        "append_buckets",
        "append_ns",
        "appended_bytes",
        "appends",
        "checkpoints",
        "compactions",
        "damaged_ranges",
        "indexes_rebuilt",
        "lost_ranges",
        "repaired_ranges",
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
        # Ranges that were found damaged, those that were filled again, and those that a start found missing.
        self.damaged_ranges = 0
        self.repaired_ranges = 0
        self.lost_ranges = 0
