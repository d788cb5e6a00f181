"""The demo's own account of what it sent, kept apart from the broker that it judges."""

import hashlib

from penstock.core.model import PenstockError

FLUSH_PIECES = 10_000


class DemoFailed(PenstockError):
    """What came back is not what was sent."""


class Account:
    """The records of each partition in order: how many, and a digest of all of them."""

    def __init__(self, partitions: int) -> None:
        self.counts = [0] * partitions
        self._digests = [hashlib.blake2b() for _ in range(partitions)]
        self._pieces: list[list[bytes]] = [[] for _ in range(partitions)]

    def note(self, partition: int, key: bytes, value: bytes, timestamp_ms: int) -> None:
        pieces = self._pieces[partition]
        # Lengths first, so that no two different records look alike.
        pieces.append(b"%d %d %d " % (timestamp_ms, len(key), len(value)))
        pieces.append(key)
        pieces.append(value)
        self.counts[partition] += 1
        if len(pieces) >= FLUSH_PIECES:
            self._flush(partition)

    def _flush(self, partition: int) -> None:
        self._digests[partition].update(b"".join(self._pieces[partition]))
        self._pieces[partition].clear()

    @property
    def records(self) -> int:
        return sum(self.counts)

    def check(self, other: "Account") -> None:
        """Raise unless the other account is exactly this one."""
        for partition, count in enumerate(self.counts):
            if other.counts[partition] != count:
                raise DemoFailed(
                    f"partition {partition}: {other.counts[partition]} records came back instead of {count}"
                )
            for account in (self, other):
                account._flush(partition)
            if self._digests[partition].digest() != other._digests[partition].digest():
                raise DemoFailed(f"partition {partition}: what came back differs from what was sent")
