"""Open, ended and aborted transactions of one partition.

    offset    10       14       20       25                     high watermark
    producer   A begins B begins A aborts B goes on ────────────────┼──
                        └ last stable offset: B is undecided from here on

A transaction that ended above the high watermark still holds back the last stable
offset: its marker is not safe yet, and a new leader might see it end differently.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.model import Offset, ProducerId


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` between the two offsets were aborted.

    `last_stable_offset` is the one right after the marker: a reader that collects aborted
    transactions for a range may stop once this lies beyond its end.
    """

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class EndedTransaction(NamedTuple):
    """First record and marker of a transaction whose marker may lie above the high watermark."""

    first_offset: Offset
    marker_offset: Offset


class OpenTransactions:
    """Which transactions of a partition are undecided."""

    __slots__ = ("_ended", "_open", "is_quiet")

    def __init__(
        self, ongoing: Iterable[tuple[ProducerId, Offset]] = (), ended: Iterable[EndedTransaction] = ()
    ) -> None:
        # Insertion order is offset order: the first value is the smallest.
        self._open: dict[ProducerId, Offset] = dict(sorted(ongoing, key=lambda pair: pair[1]))
        self._ended: deque[EndedTransaction] = deque(ended)
        # Whether none is open or unsettled, so that all below the high watermark is stable.
        self.is_quiet = not self._open and not self._ended

    def begin(self, producer_id: ProducerId, offset: Offset) -> None:
        """Note an appended transactional batch; only the first of a transaction counts."""
        self._open.setdefault(producer_id, offset)
        self.is_quiet = False

    def end(self, producer_id: ProducerId, marker_offset: Offset) -> AbortedTransaction | None:
        """Note an appended marker; returns what an abort undoes, or None if nothing was open."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        self._ended.append(EndedTransaction(first_offset, marker_offset))
        stable = next(iter(self._open.values()), Offset(marker_offset + 1))
        return AbortedTransaction(producer_id, first_offset, marker_offset, stable)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open

    def first_offset_of(self, producer_id: ProducerId) -> Offset | None:
        """Where the open transaction of this producer begins."""
        return self._open.get(producer_id)

    def settle(self, high_watermark: Offset) -> None:
        """Forget ended transactions whose marker lies below the high watermark: they are final."""
        while self._ended and self._ended[0].marker_offset < high_watermark:
            self._ended.popleft()
        self.is_quiet = not self._open and not self._ended

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Below this offset every transaction is decided and its marker replicated."""
        stable = min(next(iter(self._open.values()), high_watermark), high_watermark)
        for ended in self._ended:
            if ended.marker_offset >= high_watermark:
                stable = min(stable, ended.first_offset)
        return stable

    def ongoing(self) -> list[tuple[ProducerId, Offset]]:
        """The open transactions, oldest first."""
        return list(self._open.items())

    def ended(self) -> list[EndedTransaction]:
        """The ended ones that are not settled yet, oldest marker first."""
        return list(self._ended)
