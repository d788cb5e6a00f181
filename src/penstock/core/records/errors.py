"""Why bytes are not a good record batch."""

from penstock.core.model import CorruptionError


class CorruptBatch(CorruptionError):
    """These bytes cannot be a record batch, or are not the batch that was written."""


class BatchIncomplete(CorruptBatch):
    """The bytes end before the batch does: the mark of a torn write at the end of a log."""

    def __init__(self, needed_bytes: int, present_bytes: int) -> None:
        super().__init__(f"a batch needs {needed_bytes} bytes, {present_bytes} are there")
        self.needed_bytes = needed_bytes
        self.present_bytes = present_bytes


class UnsupportedMagic(CorruptBatch):
    """A message set in one of the formats Kafka used before version 0.11."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            f"message format magic {magic} is not supported, only magic 2 (Kafka 0.11 and later)"
        )
        self.magic = magic


class RecordsTooLarge(CorruptBatch):
    """The records would take more memory than the reader allows."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"records unpack to more than the {limit_bytes} bytes allowed")
        self.limit_bytes = limit_bytes


class InvalidRecord(CorruptBatch):
    """One record breaks the format; `index` counts from 0 within its batch."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"record {index}: {reason}")
        self.index = index
        self.reason = reason
