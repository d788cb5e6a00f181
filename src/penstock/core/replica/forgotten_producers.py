"""Producers whose state was evicted though they may still be alive, so that none of them repeats a batch.

A producer that nobody knows may start with any sequence. One that was evicted to make room may retry a batch
that is in the log already; it must hear that its state is gone instead, as of Kafka's UNKNOWN_PRODUCER_ID,
and begins a new epoch. All that is needed for that is its id and epoch, eight bytes.

They are kept for as long as a retry is plausible, in two generations: when the younger one is full or old
enough, the older one is dropped. If that is too early, because there were too many of them, a producer that
is unknown must start with sequence 0 for a while: what is nobody's first batch is taken for a retry.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from penstock.core.model import ProducerEpoch, ProducerId, Timestamp

# Clients give up a batch after two minutes by default (`delivery.timeout.ms`).
RETRY_MS_MAX = 15 * 60_000
GENERATION_MAX = 50_000
_EPOCH_BITS = 16
_KEY_MAX = 2**63 - 1


def _key(producer_id: int, epoch: int) -> int:
    # Ids are counted from 0: those that share a key are never in use together.
    return (producer_id << _EPOCH_BITS | epoch & 0xFFFF) & _KEY_MAX


class ForgottenProducers:
    """Ids and epochs of evicted producers of one partition."""

    __slots__ = ("_began_at", "_incomplete_for", "_older", "_recent")

    def __init__(self, keys: Iterable[int] = (), *, is_incomplete: bool = False) -> None:
        # Both sorted.
        self._recent = array("q", sorted(keys))
        self._older = array("q")
        self._began_at: Timestamp | None = None
        # For how many more generations some may be alive that were dropped.
        self._incomplete_for = 2 if is_incomplete else 0

    @property
    def is_incomplete(self) -> bool:
        """Whether some were dropped that may still be alive."""
        return self._incomplete_for > 0

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ForgottenProducers)
            and self.keys() == other.keys()
            and self.is_incomplete == other.is_incomplete
        )

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> "array[int]":
        """All of them, for a snapshot."""
        return array("q", sorted([*self._older, *self._recent]))

    def add(self, evicted: Iterable[tuple[ProducerId, ProducerEpoch]], now: Timestamp) -> None:
        """Remember producers that were evicted just now."""
        self.expire(now)
        if self._began_at is None:
            self._began_at = now
        keys = [_key(producer_id, epoch) for producer_id, epoch in evicted]
        self._recent = array("q", sorted([*self._recent, *keys]))
        if len(self._recent) >= GENERATION_MAX:
            if self._older:
                self._incomplete_for = 2
            self._turn_over(now)

    def expire(self, now: Timestamp) -> None:
        """Drop those that will not retry any more."""
        began_at = self._began_at
        if began_at is None:
            if self:
                # Read from a snapshot: how old they are is not known.
                self._began_at = now
        elif now - began_at >= RETRY_MS_MAX or now < began_at:
            self._turn_over(now)
            self._incomplete_for = max(self._incomplete_for - 1, 0)

    def _turn_over(self, now: Timestamp) -> None:
        self._older, self._recent = self._recent, array("q")
        self._began_at = now

    def includes(self, producer_id: int, epoch: int) -> bool:
        key = _key(producer_id, epoch)
        for keys in (self._recent, self._older):
            found = bisect_left(keys, key)
            if found < len(keys) and keys[found] == key:
                return True
        return False

    def may_include(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Whether a batch of a producer without state may be a repetition."""
        return self.includes(producer_id, epoch) or (self.is_incomplete and base_sequence > 0)
