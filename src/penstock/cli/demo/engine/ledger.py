"""The demo's own account of what it sent, kept apart from the log that it judges."""

import hashlib
from array import array
from bisect import bisect_left

from penstock.core.model import PenstockError
from penstock.core.records import Record


class DemoFailed(PenstockError):
    """What came back is not what was sent."""


class Ledger:
    """The records of one partition in order: how many, when, and a digest of all of them."""

    def __init__(self) -> None:
        self.timestamps = array("q")
        self._digest = hashlib.blake2b()

    def __len__(self) -> int:
        return len(self.timestamps)

    def note(self, record: Record) -> None:
        key, value = record.key or b"", record.value or b""
        self._digest.update(b"%d %d %d " % (record.timestamp, len(key), len(value)))
        self._digest.update(key)
        self._digest.update(value)
        self.timestamps.append(record.timestamp)

    def check(self, other: "Ledger", what: str) -> None:
        """Raise unless the other account is exactly this one."""
        if len(other) != len(self):
            raise DemoFailed(f"{what}: {len(other)} records instead of {len(self)}")
        if other._digest.digest() != self._digest.digest():
            raise DemoFailed(f"{what}: the records differ from what was sent")

    def first_at(self, timestamp: int) -> int:
        """The offset of the first record at or after a time."""
        return bisect_left(self.timestamps, timestamp)
