"""Why a log does not do what it was asked."""

from penstock.core.model import CorruptionError, Offset, PenstockError, StorageError, TopicId


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
    """An earlier failure left it open what is on disk: this log takes no more writes."""

    def __init__(self, directory: str, cause: BaseException) -> None:
        super().__init__(f"the log {directory} has stopped: {cause}")
        self.cause = cause


class Abandoned(StorageError):
    """The log was closed because it is going to be removed; what it held is of no more interest."""


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
    """The offsets asked for lie where the log is damaged."""

    def __init__(self, offset: Offset, start: Offset, end: Offset, reason: str) -> None:
        super().__init__(f"offset {offset} lies in the damaged range {start}..{end}: {reason}")
        self.offset = offset
        self.start = start
        self.end = end
        self.reason = reason
